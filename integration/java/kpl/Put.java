import static java.nio.charset.StandardCharsets.UTF_8;

import com.google.common.util.concurrent.FutureCallback;
import com.google.common.util.concurrent.Futures;
import com.google.common.util.concurrent.MoreExecutors;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.stream.Collectors;
import software.amazon.kinesis.producer.KinesisProducer;
import software.amazon.kinesis.producer.KinesisProducerConfiguration;
import software.amazon.kinesis.producer.UserRecordFailedException;
import software.amazon.kinesis.producer.UserRecordResult;

/**
 * Puts what it reads into a stream with the real KPL, and tells what became of each record.
 *
 * <p>Arguments: a properties file of the KPL, the stream, the file for results. A line of standard input is a name, a
 * partition key in base64, an explicit hash key or {@code -}, and data in base64, separated by blanks. A line of the file is
 * the name, {@code ok} or {@code failed}, shard, sequence number, the number of attempts, and the error codes of the attempts.
 */
public final class Put {
    private static final int OUTSTANDING = 5_000;

    private Put() {}

    public static void main(String[] arguments) throws Exception {
        String stream = arguments[1];
        Base64.Decoder base64 = Base64.getDecoder();
        KinesisProducer producer =
                new KinesisProducer(KinesisProducerConfiguration.fromPropertiesFile(arguments[0]));
        try (BufferedWriter results = Files.newBufferedWriter(Path.of(arguments[2]));
                BufferedReader input = new BufferedReader(new InputStreamReader(System.in, UTF_8))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] parts = line.split(" ", -1);
                String key = new String(base64.decode(parts[1]), UTF_8);
                String place = parts[2].equals("-") ? null : parts[2];
                while (producer.getOutstandingRecordsCount() > OUTSTANDING) {
                    Thread.sleep(1);
                }
                ByteBuffer data = ByteBuffer.wrap(base64.decode(parts[3]));
                Futures.addCallback(
                        producer.addUserRecord(stream, key, place, data),
                        new Told(parts[0], results),
                        MoreExecutors.directExecutor());
            }
            producer.flushSync();
        }
        producer.destroy();
    }

    /** Writes the result of one record; the callbacks run in several threads. */
    private static final class Told implements FutureCallback<UserRecordResult> {
        private final String name;
        private final BufferedWriter results;

        private Told(String name, BufferedWriter results) {
            this.name = name;
            this.results = results;
        }

        @Override
        public void onSuccess(UserRecordResult result) {
            tell("ok", result);
        }

        @Override
        public void onFailure(Throwable failure) {
            tell("failed", failure instanceof UserRecordFailedException ended ? ended.getResult() : null);
        }

        private void tell(String outcome, UserRecordResult result) {
            String rest = result == null
                    ? "- - 0 "
                    : String.join(
                            " ",
                            String.valueOf(result.getShardId()),
                            String.valueOf(result.getSequenceNumber()),
                            String.valueOf(result.getAttempts().size()),
                            result.getAttempts().stream()
                                    .filter(attempt -> !attempt.isSuccessful())
                                    .map(attempt -> attempt.getErrorCode().replace(' ', '_'))
                                    .collect(Collectors.joining(",")));
            try {
                synchronized (results) {
                    results.write(name + " " + outcome + " " + rest + "\n");
                }
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
