package headrace.lake;

/**
 * Ends this JVM some time after the process that started it has ended. A JVM that loses its driver exits by itself; but then
 * Spark's hooks run, and one that waits for an answer of the driver, or for a broker, would keep it for ever.
 */
public final class Tether extends Thread {
    private static final long LOOK = 1000; // ms between two looks
    private final ProcessHandle driver;
    private final long grace;

    /** Watches the process `driver`, and leaves the hooks `grace` ms. */
    public Tether(ProcessHandle driver, long grace) {
        super("headrace-tether");
        this.driver = driver;
        this.grace = grace;
        this.setDaemon(true);
    }

    public void run() {
        try {
            while (this.driver.isAlive()) {
                Thread.sleep(LOOK);
            }
            Thread.sleep(this.grace);
        } catch (InterruptedException interrupted) {
            return;
        }
        Runtime.getRuntime().halt(1);
    }
}
