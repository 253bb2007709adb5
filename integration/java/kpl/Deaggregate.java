import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.List;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;

/**
 * Opens records as a worker of the KCL does that knows its shard's range: with the KCL's own code.
 *
 * <p>A line of standard input is the first and the last hash key of a shard, its id, a sequence number, a partition key in
 * base64, and data in base64. A line of standard output is a user record: shard, sequence number, sub-sequence number,
 * partition key in base64, explicit hash key or {@code -}, and data in base64.
 */
public final class Deaggregate {
    private Deaggregate() {}

    public static void main(String[] arguments) throws Exception {
        Base64.Decoder decoder = Base64.getDecoder();
        Base64.Encoder encoder = Base64.getEncoder();
        AggregatorUtil kcl = new AggregatorUtil();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        BufferedWriter output = new BufferedWriter(new OutputStreamWriter(System.out, UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] parts = line.split(" ", -1);
            KinesisClientRecord record = KinesisClientRecord.builder()
                    .sequenceNumber(parts[3])
                    .partitionKey(new String(decoder.decode(parts[4]), UTF_8))
                    .data(ByteBuffer.wrap(decoder.decode(parts[5])))
                    .build();
            for (KinesisClientRecord one : kcl.deaggregate(List.of(record), parts[0], parts[1])) {
                byte[] data = new byte[one.data().remaining()];
                one.data().get(data);
                String place = one.explicitHashKey() == null ? "-" : one.explicitHashKey();
                output.write(String.join(
                        " ",
                        parts[2],
                        one.sequenceNumber(),
                        String.valueOf(one.subSequenceNumber()),
                        encoder.encodeToString(one.partitionKey().getBytes(UTF_8)),
                        place,
                        encoder.encodeToString(data)));
                output.write("\n");
            }
        }
        output.flush();
    }
}
