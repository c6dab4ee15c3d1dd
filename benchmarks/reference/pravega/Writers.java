import io.pravega.client.ClientConfig;
import io.pravega.client.connection.impl.ConnectionPool;
import io.pravega.client.connection.impl.ConnectionPoolImpl;
import io.pravega.client.connection.impl.RawClient;
import io.pravega.client.connection.impl.SocketConnectionFactoryImpl;
import io.pravega.client.control.impl.Controller;
import io.pravega.client.segment.impl.Segment;
import io.pravega.client.stream.EventStreamWriter;
import io.pravega.client.stream.EventWriterConfig;
import io.pravega.client.stream.impl.ByteArraySerializer;
import io.pravega.client.stream.impl.ClientFactoryImpl;
import io.pravega.client.stream.impl.SegmentWithRange;
import io.pravega.client.stream.impl.StreamSegments;
import io.pravega.shared.protocol.netty.PravegaNodeUri;
import io.pravega.shared.protocol.netty.Reply;
import io.pravega.shared.protocol.netty.WireCommands;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Writers of Pravega's own client, without its controller, each with a segment of its own, at any segment store.
 *
 * Arguments: the port, how many writers, how many events of each are on their way, the bytes of an event, the seconds between the
 * first acknowledgement of each writer and the measurement, and those of the measurement. Says "begin" and "end" around the measurement and waits for a line of input after each, so that
 * the server's processor time can be read; then the events that were acknowledged meanwhile, and their p50 and p99 in
 * microseconds. These lines begin with "writers: ".
 */
public final class Writers {
    private static final String SCOPE = "benchmark";

    private final ConnectionPool pool;
    private final Controller controller;
    private final int unacknowledged;
    private final byte[] event;
    private final ConcurrentLinkedQueue<Long> waits = new ConcurrentLinkedQueue<>();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();
    private final CountDownLatch heard;
    private volatile boolean measured;
    private volatile boolean over;

    private Writers(int port, int writers, int unacknowledged, int bytes) {
        ClientConfig config = ClientConfig.builder().build();
        this.pool = new ConnectionPoolImpl(config, new SocketConnectionFactoryImpl(config));
        this.controller = controller(port);
        this.heard = new CountDownLatch(writers);
        this.unacknowledged = unacknowledged;
        this.event = new byte[bytes];
        new Random(1).nextBytes(event);
    }

    public static void main(String[] words) {
        int[] numbers = Arrays.stream(words).mapToInt(Integer::parseInt).toArray();
        try {
            new Writers(numbers[0], numbers[1], numbers[2], numbers[3]).run(numbers[1], numbers[4], numbers[5]);
            System.exit(0);  // the client's threads would go on
        } catch (Throwable problem) {
            problem.printStackTrace();
            System.exit(1);
        }
    }

    private void run(int writers, int before, int seconds) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < writers; number++) {
            String stream = UUID.randomUUID().toString();
            create(new Segment(SCOPE, stream, 0));
            threads.add(new Thread(() -> write(stream)));
        }
        threads.forEach(Thread::start);
        while (!heard.await(1, TimeUnit.SECONDS)) {
            fail();
        }
        Thread.sleep(before * 1000L);
        say("begin");
        long began = System.nanoTime();
        measured = true;
        Thread.sleep(seconds * 1000L);
        measured = false;
        double elapsed = (System.nanoTime() - began) / 1e9;
        say("end");
        over = true;
        for (Thread thread : threads) {
            thread.join();
        }
        fail();
        if (waits.isEmpty()) {
            throw new IllegalStateException("nothing was acknowledged meanwhile: more seconds are needed");
        }
        long[] sorted = waits.stream().mapToLong(Long::longValue).sorted().toArray();
        System.out.printf(
            "writers: %d %.3f %d %d%n", sorted.length, elapsed, sorted[sorted.length / 2] / 1000, sorted[sorted.length * 99 / 100] / 1000);
    }

    private void fail() throws Exception {
        if (failure.get() != null) {
            throw new IllegalStateException(failure.get());
        }
    }

    private static void say(String word) throws Exception {
        System.out.println("writers: " + word);
        System.in.read();
    }

    private void write(String stream) {
        EventWriterConfig config = EventWriterConfig.builder().build();
        ClientFactoryImpl factory = new ClientFactoryImpl(SCOPE, controller, pool);  // to close it would close the pool
        Semaphore room = new Semaphore(unacknowledged);
        AtomicBoolean first = new AtomicBoolean(true);
        try (EventStreamWriter<byte[]> writer = factory.createEventWriter(stream, new ByteArraySerializer(), config)) {
            while (!over) {
                room.acquire();
                long sent = System.nanoTime();
                writer.writeEvent(event).whenComplete((nothing, problem) -> {
                    if (problem != null) {
                        failure.compareAndSet(null, problem);
                    } else if (first.getAndSet(false)) {
                        heard.countDown();
                    } else if (measured) {
                        waits.add(System.nanoTime() - sent);
                    }
                    room.release();
                });
            }
            writer.flush();
        } catch (Throwable problem) {
            failure.compareAndSet(null, problem);
        }
    }

    private void create(Segment segment) throws Exception {
        try (RawClient raw = new RawClient(controller, pool, segment)) {
            long id = raw.getFlow().getNextSequenceNumber();
            Reply created = raw.sendRequest(id, new WireCommands.CreateSegment(
                id, segment.getScopedName(), WireCommands.CreateSegment.NO_SCALE, 0, "", 0)).get();
            if (!(created instanceof WireCommands.SegmentCreated)) {
                throw new IllegalStateException(created.toString());
            }
        }
    }

    /** What the client asks of a controller to write to a segment. */
    private static Controller controller(int port) {
        return (Controller) Proxy.newProxyInstance(
            Writers.class.getClassLoader(),
            new Class<?>[] {Controller.class},
            (proxy, method, arguments) -> switch (method.getName()) {
                case "getEndpointForSegment" -> CompletableFuture.completedFuture(new PravegaNodeUri("127.0.0.1", port));
                case "getCurrentSegments" -> CompletableFuture.completedFuture(
                    new StreamSegments(new TreeMap<>(Map.of(
                        1.0, new SegmentWithRange(new Segment(SCOPE, (String) arguments[1], 0), 0.0, 1.0)))));
                case "getOrRefreshDelegationTokenFor" -> CompletableFuture.completedFuture("");
                case "updateStaleValueInCache", "close" -> null;
                default -> throw new UnsupportedOperationException(method.getName());
            });
    }
}
