package headrace.lake;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.api.java.UDF3;

/**
 * An index of the ids that landed lately, with the time and place of each, in primitive arrays. It is a Spark function that
 * says whether an event is a duplicate. All tasks of a batch share it, so it works in one JVM only.
 *
 * Janino, which Spark ships, compiles it when the job starts: so it has no generics, no lambdas, and no private members that
 * a nested class uses. `id_arrays.py` does the same with NumPy; the tests compare both with the same model.
 *
 * An entry has four longs: the id's 32 hex digits as two, its Kafka timestamp in milliseconds, and its place (see `index.py`). An
 * id has several entries if its events are farther apart than the horizon. Open addressing with linear probing, in stripes with a
 * lock each.
 */
public final class RecentIds implements UDF3 {
    private static final long serialVersionUID = 1L;
    private static final int STRIPES = 32;
    static final int FIELDS = 4;
    static final int SMALLEST = 64; // slots of a stripe
    static final long BYTES = 8L * FIELDS; // of a slot
    static final long EMPTY = Long.MIN_VALUE; // as the time of a slot
    public static final long NONE_FORGOTTEN = EMPTY; // as the time up to which it has forgotten
    static final double FULLEST = 0.8;
    static final double ROOMY = 0.6; // how full a stripe is when it has forgotten its oldest entries
    private static final int ID_LENGTH = 34;
    private static final byte[] DIGITS = new byte[128];

    private static volatile RecentIds living;

    static {
        Arrays.fill(DIGITS, (byte) -1);
        for (int digit = 0; digit < 16; digit++) {
            DIGITS["0123456789abcdef".charAt(digit)] = (byte) digit;
        }
    }

    transient long horizon;
    transient long most;
    private transient Stripe[] stripes;
    transient AtomicLong held;

    /** Finds duplicates within `horizon` ms of each other, in at most `most` bytes. */
    public RecentIds(long horizon, long most) {
        this.horizon = horizon;
        this.most = most;
        this.held = new AtomicLong();
        this.stripes = new Stripe[STRIPES];
        for (int index = 0; index < STRIPES; index++) {
            this.stripes[index] = new Stripe(this);
        }
        living = this;
    }

    /** Frees the index, the only one of its JVM. */
    public void close() {
        living = null;
    }

    /** Replaces a task's copy of the function by the one shared object. Not private, because Janino renames private methods. */
    Object readResolve() throws java.io.ObjectStreamException {
        RecentIds shared = living;
        if (shared == null) {
            throw new java.io.InvalidObjectException("the index of ids is not in this JVM");
        }
        return shared;
    }

    /** (id as bytes, time in ms, place) -> whether the event is a duplicate. */
    public Object call(Object id, Object time, Object place) throws Exception {
        return Boolean.valueOf(checkAndAdd((byte[]) id, ((Long) time).longValue(), ((Long) place).longValue()));
    }

    public boolean checkAndAdd(byte[] id, long time, long place) {
        if (id.length != ID_LENGTH) {
            return false;
        }
        long high = 0;
        long low = 0;
        int wrong = 0;
        for (int index = 2; index < ID_LENGTH; index++) {
            int digit = DIGITS[id[index] & 127] | id[index] >> 31;
            wrong |= digit;
            high = high << 4 | low >>> 60;
            low = low << 4 | digit;
        }
        if (wrong < 0) {
            return false; // not a valid id: never a duplicate
        }
        long hash = mixed(high, low);
        return stripes[(int) hash & STRIPES - 1].checkAndAdd(high, low, time, place, hash >>> 33);
    }

    static long mixed(long high, long low) {
        long hash = high * 0x9E3779B97F4A7C15L + low;
        hash = (hash ^ hash >>> 32) * 0xD6E8FEB86659FD93L;
        hash = (hash ^ hash >>> 32) * 0xD6E8FEB86659FD93L;
        return hash ^ hash >>> 32;
    }

    /** The number of entries. */
    public long ids() {
        long sum = 0;
        for (int index = 0; index < STRIPES; index++) {
            sum += stripes[index].entries();
        }
        return sum;
    }

    /** The bytes of the arrays. */
    public long bytes() {
        return held.get();
    }

    /** The latest time of an entry that was forgotten, in ms; or `NONE_FORGOTTEN`. */
    public long forgottenTo() {
        long latest = NONE_FORGOTTEN;
        for (int index = 0; index < STRIPES; index++) {
            latest = Math.max(latest, stripes[index].forgottenTo());
        }
        return latest;
    }

    static final class Stripe {
        private final RecentIds all;
        private long[] slots;
        private int capacity;
        private int entries;
        private long forgottenTo = NONE_FORGOTTEN;

        Stripe(RecentIds all) {
            this.all = all;
            this.capacity = SMALLEST;
            this.slots = empty(SMALLEST);
            all.held.addAndGet(SMALLEST * BYTES);
        }

        synchronized int entries() {
            return entries;
        }

        synchronized long forgottenTo() {
            return forgottenTo;
        }

        /** `hash`: 31 bits. */
        synchronized boolean checkAndAdd(long high, long low, long time, long place, long hash) {
            boolean near = false;
            int at = first(hash);
            while (slots[at + 2] != EMPTY) {
                if (slots[at] == high && slots[at + 1] == low) {
                    long apart = slots[at + 2] - time;
                    if (slots[at + 3] == place && apart == 0) {
                        return false; // this very record: the same answer as before
                    }
                    near |= apart <= all.horizon && -apart <= all.horizon;
                }
                at = next(at);
            }
            if (near) {
                return true;
            }
            if (entries + 1 > capacity * FULLEST) {
                makeRoom();
            }
            put(high, low, time, place, hash);
            return false;
        }

        private int first(long hash) {
            return (int) (hash * capacity >>> 31) * FIELDS;
        }

        private int next(int at) {
            int following = at + FIELDS;
            return following == slots.length ? 0 : following;
        }

        private void put(long high, long low, long time, long place, long hash) {
            int at = first(hash);
            while (slots[at + 2] != EMPTY) {
                at = next(at);
            }
            slots[at] = high;
            slots[at + 1] = low;
            slots[at + 2] = time;
            slots[at + 3] = place;
            entries++;
        }

        private static long[] empty(int capacity) {
            long[] slots = new long[capacity * FIELDS];
            for (int at = 2; at < slots.length; at += FIELDS) {
                slots[at] = EMPTY;
            }
            return slots;
        }

        /** The stripe grows; if it must not, it forgets its oldest entries. */
        private void makeRoom() {
            long from = EMPTY + 1;
            int wanted = capacity + capacity / 4;
            long more = (wanted - capacity) * BYTES;
            if (all.held.addAndGet(more) > all.most) {
                all.held.addAndGet(-more);
                wanted = capacity;
                int drop = entries - (int) (capacity * ROOMY);
                long[] times = new long[entries];
                int count = 0;
                for (int at = 2; at < slots.length; at += FIELDS) {
                    if (slots[at] != EMPTY) {
                        times[count++] = slots[at];
                    }
                }
                Arrays.sort(times);
                from = times[drop - 1] + 1;
                forgottenTo = Math.max(forgottenTo, times[drop - 1]);
            }
            long[] old = slots;
            slots = empty(wanted);
            capacity = wanted;
            entries = 0;
            for (int was = 0; was < old.length; was += FIELDS) {
                long time = old[was + 2];
                if (time >= from) {
                    put(old[was], old[was + 1], time, old[was + 3], mixed(old[was], old[was + 1]) >>> 33);
                }
            }
        }
    }
}
