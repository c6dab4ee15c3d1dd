import io.pravega.client.ClientConfig;
import io.pravega.client.connection.impl.ConnectionPool;
import io.pravega.client.connection.impl.ConnectionPoolImpl;
import io.pravega.client.connection.impl.RawClient;
import io.pravega.client.connection.impl.SocketConnectionFactoryImpl;
import io.pravega.client.control.impl.Controller;
import io.pravega.client.security.auth.DelegationTokenProviderFactory;
import io.pravega.client.segment.impl.EventSegmentReader;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.segment.impl.SegmentInfo;
import io.pravega.client.segment.impl.SegmentInputStreamFactoryImpl;
import io.pravega.client.segment.impl.SegmentMetadataClient;
import io.pravega.client.segment.impl.SegmentMetadataClientFactoryImpl;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.impl.ByteArraySerializer;
import io.pravega.client.stream.impl.ClientFactoryImpl;
import io.pravega.client.stream.impl.SegmentWithRange;
import io.pravega.client.stream.impl.StreamSegments;
import io.pravega.shared.protocol.netty.PravegaNodeUri;
import io.pravega.shared.protocol.netty.Reply;
import io.pravega.shared.protocol.netty.Request;
import io.pravega.shared.protocol.netty.WireCommand;
import io.pravega.shared.protocol.netty.WireCommands;
import io.pravega.shared.security.auth.AccessOperation;
import java.io.DataOutputStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;

/**
 * Pravega's own client, without its controller: it writes a stream of several segments by one port, and follows the segments by
 * another one until all is read.
 *
 * Arguments: the port to write to, the port to read from, the stream, how many segments, how many events, how many connections to
 * each port, and a folder, which gets what was read: a file for each segment, with each event behind its length (i32).
 */
public final class SegmentClient {
    private static final String SCOPE = "scope";
    private static final int KEYS = 64;
    private static final int LARGE_ONE = 2_500;
    private static final int UNACKNOWLEDGED = 1_000;

    private final int count;
    private final String stream;
    private final ConnectionPool pool;
    private final Controller written;
    private final Controller read;

    private SegmentClient(int writePort, int readPort, String stream, int count, int connections) {
        ClientConfig config = ClientConfig.builder().maxConnectionsPerSegmentStore(connections).build();
        this.count = count;
        this.stream = stream;
        this.pool = new ConnectionPoolImpl(config, new SocketConnectionFactoryImpl(config));
        this.written = controller(writePort);
        this.read = controller(readPort);
    }

    public static void main(String[] words) throws Exception {
        int[] numbers = Arrays.stream(words, 3, 6).mapToInt(Integer::parseInt).toArray();
        SegmentClient client = new SegmentClient(
            Integer.parseInt(words[0]), Integer.parseInt(words[1]), words[2], numbers[0], numbers[2]);
        try {
            client.run(numbers[1], Path.of(words[6]));
            System.exit(0);  // the client's threads would go on
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private Segment segment(int number) {
        return new Segment(SCOPE, stream, number);
    }

    /** The four answers that the client needs; a real controller knows more. */
    private Controller controller(int port) {
        return (Controller) Proxy.newProxyInstance(
            SegmentClient.class.getClassLoader(),
            new Class<?>[] {Controller.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "getEndpointForSegment" ->
                    CompletableFuture.completedFuture(new PravegaNodeUri("127.0.0.1", port));
                case "getCurrentSegments" -> CompletableFuture.completedFuture(segments());
                case "getOrRefreshDelegationTokenFor" -> CompletableFuture.completedFuture("a.delegation.token");
                case "updateStaleValueInCache", "close" -> null;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    private StreamSegments segments() {
        TreeMap<Double, SegmentWithRange> ranges = new TreeMap<>();
        for (int number = 0; number < count; number++) {
            double high = (number + 1.0) / count;
            ranges.put(high, new SegmentWithRange(segment(number), number / (double) count, high));
        }
        return new StreamSegments(ranges);
    }

    private void run(int events, Path folder) throws Exception {
        for (int number = 0; number < count; number++) {
            Reply created = create(number);
            if (!(created instanceof WireCommands.SegmentCreated)) {
                throw new IllegalStateException(created.toString());
            }
        }
        List<Reader> readers = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            readers.add(new Reader(number, folder.resolve(number + ".events")));
        }
        readers.forEach(Thread::start);
        write(events);
        for (Reader reader : readers) {
            reader.end = length(reader.number);
        }
        for (Reader reader : readers) {
            reader.join();
            if (reader.failure != null) {
                throw reader.failure;
            }
        }
    }

    private <T extends Request & WireCommand> Reply ask(int number, java.util.function.LongFunction<T> request)
        throws InterruptedException, ExecutionException {
        try (RawClient raw = new RawClient(read, pool, segment(number))) {
            long id = raw.getFlow().getNextSequenceNumber();
            return raw.sendRequest(id, request.apply(id)).get();
        }
    }

    private Reply create(int number) throws InterruptedException, ExecutionException {
        String name = segment(number).getScopedName();
        return ask(number, id -> new WireCommands.CreateSegment(id, name, WireCommands.CreateSegment.NO_SCALE, 0, "", 0));
    }

    private void write(int events) throws InterruptedException {
        EventWriterConfig config = EventWriterConfig.builder()
            .initialBackoffMillis(1)
            .backoffMultiple(2)
            .maxBackoffMillis(50)
            .retryAttempts(1_000_000)
            .enableConnectionPooling(true)
            .build();
        List<CompletableFuture<Void>> acknowledged = new ArrayList<>();
        ClientFactoryImpl factory = new ClientFactoryImpl(SCOPE, written, pool);  // to close it would close the pool
        try (EventStreamWriter<byte[]> writer = factory.createEventWriter(stream, new ByteArraySerializer(), config)) {
            Semaphore room = new Semaphore(UNACKNOWLEDGED);  // all that is not acknowledged is sent again after a cut
            for (int n = 0; n < events; n++) {
                room.acquire();
                CompletableFuture<Void> event = writer.writeEvent("key " + n % KEYS, event(n));
                event.whenComplete((nothing, problem) -> room.release());
                acknowledged.add(event);
            }
            writer.flush();
            acknowledged.forEach(CompletableFuture::join);
        }
    }

    /** An event that tells its number. Most are small, some do not fit into a block. */
    private static byte[] event(int n) {
        byte[] text = ("event " + n + " ").getBytes(StandardCharsets.UTF_8);
        byte[] event = Arrays.copyOf(text, text.length + (n % LARGE_ONE == LARGE_ONE - 1 ? 300_000 : n * 31 % 400));
        Arrays.fill(event, text.length, event.length, (byte) (n % 251));
        return event;
    }

    private long length(int number) throws Exception {
        try (SegmentMetadataClient metadata = new SegmentMetadataClientFactoryImpl(read, pool).createSegmentMetadataClient(
                segment(number), DelegationTokenProviderFactory.create(read, segment(number), AccessOperation.READ_WRITE))) {
            SegmentInfo info = metadata.getSegmentInfo().get();
            System.out.println(segment(number).getScopedName() + " " + info.getWriteOffset());
            return info.getWriteOffset();
        }
    }

    /** Follows one segment until `end`. */
    private final class Reader extends Thread {
        private final int number;
        private final Path file;
        private volatile long end = Long.MAX_VALUE;
        private volatile Exception failure;

        private Reader(int number, Path file) {
            this.number = number;
            this.file = file;
        }

        @Override
        public void run() {
            try (EventSegmentReader reader = new SegmentInputStreamFactoryImpl(SegmentClient.this.read, pool)
                     .createEventReaderForSegment(segment(number), 1 << 20);
                 DataOutputStream out = new DataOutputStream(Files.newOutputStream(file))) {
                while (reader.getOffset() < end) {
                    ByteBuffer event = reader.read(1_000);
                    if (event != null) {
                        byte[] bytes = new byte[event.remaining()];
                        event.get(bytes);
                        out.writeInt(bytes.length);
                        out.write(bytes);
                    }
                }
            } catch (Exception problem) {
                failure = problem;
            }
        }
    }
}
