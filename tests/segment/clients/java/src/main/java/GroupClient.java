import io.pravega.client.ClientConfig;
import io.pravega.client.admin.impl.ReaderGroupManagerImpl;
import io.pravega.client.connection.impl.ConnectionPool;
import io.pravega.client.connection.impl.ConnectionPoolImpl;
import io.pravega.client.connection.impl.RawClient;
import io.pravega.client.connection.impl.SocketConnectionFactoryImpl;
import io.pravega.client.control.impl.Controller;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.state.Revision;
import io.pravega.client.state.RevisionedStreamClient;
import io.pravega.client.state.SynchronizerConfig;
import io.pravega.client.stream.EventStreamReader;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.ReaderConfig;
import io.pravega.client.stream.ReaderGroupConfig;
import io.pravega.client.stream.Stream;
import io.pravega.client.stream.impl.ClientFactoryImpl;
import io.pravega.client.stream.impl.SegmentWithRange;
import io.pravega.client.stream.impl.StreamSegments;
import io.pravega.client.stream.impl.UTF8StringSerializer;
import io.pravega.shared.NameUtils;
import io.pravega.shared.protocol.netty.PravegaNodeUri;
import io.pravega.shared.protocol.netty.Reply;
import io.pravega.shared.protocol.netty.WireCommands;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Pravega's own client, without its controller: a counter that several threads raise under a condition, and a group of readers.
 *
 * Arguments: the port, the stream, its segments, how often each thread raises the counter, how many events are written and read
 * at least, and how many threads and readers. More are written until each reader has had one. Writes a line for each entry of the
 * counter, "counter VALUE THREAD", one for each event that was read, "event READER EVENT", and "written COUNT".
 */
public final class GroupClient {
    private static final String SCOPE = "scope";
    private static final long PATIENCE = 300_000;
    private static final int KEYS = 64;

    private final String stream;
    private final String counter;
    private final String group;
    private final int segments;
    private final int threads;
    private final ConnectionPool pool;
    private final Controller controller;
    private final ClientFactoryImpl factory;

    private GroupClient(int port, String stream, int segments, int threads) {
        ClientConfig config = ClientConfig.builder().build();
        this.stream = stream;
        this.counter = stream + "-counter";
        this.group = stream + "-group";
        this.segments = segments;
        this.threads = threads;
        this.pool = new ConnectionPoolImpl(config, new SocketConnectionFactoryImpl(config));
        this.controller = controller(port);
        this.factory = new ClientFactoryImpl(SCOPE, controller, pool);
    }

    public static void main(String[] words) throws Exception {
        int[] numbers = new int[words.length];
        for (int at = 2; at < words.length; at++) {
            numbers[at] = Integer.parseInt(words[at]);
        }
        GroupClient client = new GroupClient(Integer.parseInt(words[0]), words[1], numbers[2], numbers[5]);
        try {
            client.create();
            client.count(numbers[3]);
            client.read(numbers[4]);
            System.exit(0);  // the client's threads would go on
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    /** What the client asks of a controller to read in groups. */
    private Controller controller(int port) {
        return (Controller) Proxy.newProxyInstance(
            GroupClient.class.getClassLoader(),
            new Class<?>[] {Controller.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "getEndpointForSegment" ->
                    CompletableFuture.completedFuture(new PravegaNodeUri("127.0.0.1", port));
                case "getCurrentSegments" -> CompletableFuture.completedFuture(ranges((String) arguments[1]));
                case "getSegmentsAtTime" -> {
                    Map<Segment, Long> begins = new HashMap<>();
                    ranges(stream).getSegments().forEach(segment -> begins.put(segment, 0L));
                    yield CompletableFuture.completedFuture(begins);
                }
                case "createReaderGroup" -> CompletableFuture.completedFuture(arguments[2]);
                case "getOrRefreshDelegationTokenFor" -> CompletableFuture.completedFuture("a.delegation.token");
                case "updateStaleValueInCache", "close" -> null;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }

    private StreamSegments ranges(String name) {
        int count = name.equals(stream) ? segments : 1;
        TreeMap<Double, SegmentWithRange> ranges = new TreeMap<>();
        for (int number = 0; number < count; number++) {
            double high = (number + 1.0) / count;
            ranges.put(high, new SegmentWithRange(new Segment(SCOPE, name, number), number / (double) count, high));
        }
        return new StreamSegments(ranges);
    }

    private void create() throws Exception {
        for (String name : List.of(stream, counter, NameUtils.getStreamForReaderGroup(group))) {
            for (Segment segment : ranges(name).getSegments()) {
                try (RawClient raw = new RawClient(controller, pool, segment)) {
                    long id = raw.getFlow().getNextSequenceNumber();
                    Reply created = raw.sendRequest(id, new WireCommands.CreateSegment(
                        id, segment.getScopedName(), WireCommands.CreateSegment.NO_SCALE, 0, "", 0)).get();
                    if (!(created instanceof WireCommands.SegmentCreated)) {
                        throw new IllegalStateException(created.toString());
                    }
                }
            }
        }
    }

    private RevisionedStreamClient<String> entries() {
        return factory.createRevisionedStreamClient(
            counter, new UTF8StringSerializer(), SynchronizerConfig.builder().build());
    }

    private void count(int times) throws Exception {
        List<Callable<Void>> work = new ArrayList<>();
        for (int thread = 0; thread < threads; thread++) {
            int own = thread;
            work.add(() -> raise(own, times));
        }
        all(work);
        try (RevisionedStreamClient<String> client = entries()) {
            Iterator<Map.Entry<Revision, String>> found = client.readFrom(client.fetchOldestRevision());
            Revision middle = null;
            while (found.hasNext()) {
                Map.Entry<Revision, String> entry = found.next();
                System.out.println("counter " + entry.getValue());
                middle = entry.getKey();
            }
            check(client.getMark() == null, "there is no mark yet");
            check(client.compareAndSetMark(null, middle), "the mark is set");
            check(!client.compareAndSetMark(null, middle), "the mark is not set again");
            check(middle.equals(client.getMark()), "the mark is read");
            client.truncateToRevision(middle);
            check(middle.equals(client.fetchOldestRevision()), "what lies before is gone");
        }
    }

    private Void raise(int own, int times) throws Exception {
        try (RevisionedStreamClient<String> client = entries()) {
            Revision read = client.fetchOldestRevision();
            int value = 0;
            for (int done = 0; done < times; ) {
                Iterator<Map.Entry<Revision, String>> found = client.readFrom(read);
                while (found.hasNext()) {
                    Map.Entry<Revision, String> entry = found.next();
                    read = entry.getKey();
                    value = Integer.parseInt(entry.getValue().split(" ")[0]);
                }
                Revision next = client.writeConditionally(read, (value + 1) + " " + own);
                if (next != null) {
                    read = next;
                    value++;
                    done++;
                }
            }
        }
        return null;
    }

    private void read(int events) throws Exception {
        EventWriterConfig config = EventWriterConfig.builder().initialBackoffMillis(1).maxBackoffMillis(50).build();
        EventStreamWriter<String> writer = factory.createEventWriter(stream, new UTF8StringSerializer(), config);
        write(writer, 0, events);
        new ReaderGroupManagerImpl(SCOPE, controller, factory).createReaderGroup(
            group,
            ReaderGroupConfig.builder().stream(Stream.of(SCOPE, stream)).disableAutomaticCheckpoints().build());
        ConcurrentLinkedQueue<String> read = new ConcurrentLinkedQueue<>();
        Set<String> served = ConcurrentHashMap.newKeySet();
        AtomicInteger written = new AtomicInteger(events);
        long until = System.currentTimeMillis() + PATIENCE;
        List<Callable<Void>> work = new ArrayList<>();
        for (int number = 0; number < threads; number++) {
            String name = "reader-" + number;
            work.add(() -> {
                try (EventStreamReader<String> reader = factory.createReader(
                         name, group, new UTF8StringSerializer(), ReaderConfig.builder().build())) {
                    while ((read.size() < written.get() || served.size() < threads) && System.currentTimeMillis() < until) {
                        String event = reader.readNextEvent(500).getEvent();
                        if (event != null) {
                            served.add(name);  // before what is read is counted
                            read.add(name + " " + event);
                        }
                    }
                }
                return null;
            });
        }
        work.add(() -> {
            while (served.size() < threads && System.currentTimeMillis() < until) {
                Thread.sleep(1000);  // the readers share the segments out anew
                if (read.size() >= written.get() && served.size() < threads) {
                    write(writer, written.get(), written.get() + KEYS);
                    written.addAndGet(KEYS);
                }
            }
            return null;
        });
        all(work);
        writer.close();
        read.forEach(line -> System.out.println("event " + line));
        System.out.println("written " + written.get());
    }

    private static void write(EventStreamWriter<String> writer, int first, int end) {
        for (int n = first; n < end; n++) {
            writer.writeEvent("key " + n % KEYS, "event-" + n);
        }
        writer.flush();
    }

    private static void all(List<Callable<Void>> work) throws Exception {
        ExecutorService executor = Executors.newFixedThreadPool(work.size());
        for (Future<Void> each : executor.invokeAll(work)) {
            each.get();
        }
        executor.shutdown();
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException("not so: " + what);
        }
    }
}
