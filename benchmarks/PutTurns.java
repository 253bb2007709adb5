import com.google.common.util.concurrent.FutureCallback;
import com.google.common.util.concurrent.Futures;
import com.google.common.util.concurrent.ListenableFuture;
import com.google.common.util.concurrent.MoreExecutors;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import software.amazon.kinesis.producer.KinesisProducer;
import software.amazon.kinesis.producer.KinesisProducerConfiguration;
import software.amazon.kinesis.producer.UserRecordResult;

/**
 * Puts records with the real KPL in turns, for {@code bench_kpl.py}.
 *
 * <p>Arguments: a properties file of the KPL, the stream, records of a turn, bytes of each, how many may be outstanding. A
 * line of standard input begins a turn: {@code keep} keeps the futures, {@code call} adds a callback to each. It prints
 * {@code done} once all are acknowledged, waits for another line, and prints how many failed and how many took several attempts.
 */
public final class PutTurns {
    private static final int KEYS = 1_000;

    private PutTurns() {}

    public static void main(String[] arguments) throws Exception {
        KinesisProducer producer =
                new KinesisProducer(KinesisProducerConfiguration.fromPropertiesFile(arguments[0]));
        String stream = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        int size = Integer.parseInt(arguments[3]);
        int outstanding = Integer.parseInt(arguments[4]);

        Random random = new Random(7);
        String[] keys = new String[count];
        byte[][] payloads = new byte[count][size];
        for (int at = 0; at < count; at++) {
            keys[at] = String.format("customer-%04d", random.nextInt(KEYS));
            random.nextBytes(payloads[at]);
        }
        BufferedReader input =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            boolean calls = line.equals("call");
            Outcomes outcomes = new Outcomes();
            List<ListenableFuture<UserRecordResult>> kept = new ArrayList<>();
            for (int at = 0; at < count; at++) {
                // Every 16 records: a look at each would cost more.
                while (at % 16 == 0 && producer.getOutstandingRecordsCount() > outstanding) {
                    Thread.sleep(1);
                }
                ListenableFuture<UserRecordResult> future =
                        producer.addUserRecord(stream, keys[at], ByteBuffer.wrap(payloads[at]));
                if (calls) {
                    Futures.addCallback(future, outcomes, MoreExecutors.directExecutor());
                } else {
                    kept.add(future);
                }
            }
            producer.flushSync();
            // The KPL drops a record from its count just before it completes the future.
            while (calls && outcomes.told.get() < count) {
                Thread.sleep(1);
            }
            System.out.println("done");
            input.readLine();
            for (ListenableFuture<UserRecordResult> future : kept) {
                Futures.addCallback(future, outcomes, MoreExecutors.directExecutor());
            }
            while (outcomes.told.get() < count) {
                Thread.sleep(1);
            }
            System.out.println(outcomes.failed + " " + outcomes.repeated);
        }
        producer.destroy();
    }

    /** Counts results; the callbacks run in several threads. */
    private static final class Outcomes implements FutureCallback<UserRecordResult> {
        private final AtomicInteger failed = new AtomicInteger();
        private final AtomicInteger repeated = new AtomicInteger();
        private final AtomicInteger told = new AtomicInteger();

        @Override
        public void onSuccess(UserRecordResult result) {
            if (result.getAttempts().size() > 1) {
                repeated.incrementAndGet();
            }
            told.incrementAndGet();
        }

        @Override
        public void onFailure(Throwable failure) {
            failed.incrementAndGet();
            told.incrementAndGet();
        }
    }
}
