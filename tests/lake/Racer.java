package headrace.lake;

import io.delta.storage.LogStore;
import java.util.Collections;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Writes one commit after the other, each at the same moment as another racer, and counts those that succeed. */
public final class Racer extends Thread {
    private final LogStore store;
    private final Configuration configuration;
    private final String folder;
    private final AtomicIntegerArray won;
    private final AtomicIntegerArray ready;

    public Racer(LogStore store, Configuration configuration, String folder, AtomicIntegerArray won, AtomicIntegerArray ready) {
        this.store = store;
        this.configuration = configuration;
        this.folder = folder;
        this.won = won;
        this.ready = ready;
    }

    public void run() {
        for (int commit = 0; commit < this.won.length(); commit++) {
            Path path = new Path(this.folder, String.format("%020d.json", new Object[] {Integer.valueOf(commit)}));
            this.ready.incrementAndGet(0);
            while (this.ready.get(0) < 2 * (commit + 1)) {
                Thread.yield();
            }
            try {
                this.store.write(path, Collections.singletonList(getName()).iterator(), Boolean.FALSE, this.configuration);
                this.won.incrementAndGet(commit);
            } catch (Exception lost) {
                continue;
            }
        }
    }
}
