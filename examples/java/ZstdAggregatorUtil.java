import com.github.luben.zstd.Zstd;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;
import software.amazon.kinesis.retrieval.kpl.Messages;

/** Turns compressed aggregates (docs/compression.md) into plain ones: {@code lifecycleConfig().aggregatorUtil(new ZstdAggregatorUtil())}. */
public class ZstdAggregatorUtil extends AggregatorUtil {
    private static final int DIGEST = 16, MAX_INNER = 16 << 20, MAX_RATIO = 256, LEAST_RECORD = 6;

    @Override
    public List<KinesisClientRecord> deaggregate(
            List<KinesisClientRecord> records, BigInteger startingHashKey, BigInteger endingHashKey) {
        return super.deaggregate(
                records.stream().map(ZstdAggregatorUtil::plain).collect(Collectors.toList()), startingHashKey, endingHashKey);
    }

    private static KinesisClientRecord plain(KinesisClientRecord record) {
        byte[] data = new byte[record.data().remaining()], magic = AGGREGATED_RECORD_MAGIC;
        record.data().duplicate().get(data);
        int end = data.length - DIGEST;
        if (end <= magic.length || !Arrays.equals(data, 0, magic.length, magic, 0, magic.length)) {
            return record;
        }
        try {
            ByteBuffer message = ByteBuffer.wrap(data, magic.length, end - magic.length);
            Messages.AggregatedRecord outer = Messages.AggregatedRecord.parseFrom(message.duplicate());
            boolean intact = Arrays.equals(md5(message), Arrays.copyOfRange(data, end, data.length));
            Messages.Record only = intact && outer.getRecordsCount() == 1 ? outer.getRecords(0) : Messages.Record.getDefaultInstance();
            byte[] sealed = only.getData().toByteArray();
            for (Messages.Tag tag : only.getTagsList()) {
                if (tag.getKey().equals("z1") && tag.getValue().matches("zstd;[0-9]{1,8};[0-9]{1,8}")) {
                    int size = Integer.parseInt(tag.getValue().split(";")[1]), count = Integer.parseInt(tag.getValue().split(";")[2]);
                    long most = Math.min(MAX_INNER, (long) MAX_RATIO * sealed.length);
                    boolean plausible = size <= most && (long) LEAST_RECORD * count <= size && Zstd.decompressedSize(sealed) == size;
                    byte[] body = plausible ? Zstd.decompress(sealed, size) : new byte[0];
                    if (plausible && body.length == size && Messages.AggregatedRecord.parseFrom(body).getRecordsCount() == count) {
                        ByteBuffer whole = ByteBuffer.allocate(magic.length + size + DIGEST).put(magic).put(body);
                        return record.toBuilder().data((ByteBuffer) whole.put(md5(ByteBuffer.wrap(body))).flip()).build();
                    }
                }
            }
        } catch (Exception error) {
            // Damaged: delivered as it is, as the KCL delivers damaged aggregates.
        }
        return record;
    }

    private static byte[] md5(ByteBuffer bytes) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("MD5");
        digest.update(bytes);
        return digest.digest();
    }
}
