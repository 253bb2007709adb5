import com.google.common.util.concurrent.FutureCallback;
import com.google.common.util.concurrent.Futures;
import com.google.common.util.concurrent.ListenableFuture;
import com.google.common.util.concurrent.MoreExecutors;
import java.nio.ByteBuffer;
import software.amazon.kinesis.producer.Attempt;
import software.amazon.kinesis.producer.KinesisProducer;
import software.amazon.kinesis.producer.KinesisProducerConfiguration;
import software.amazon.kinesis.producer.UserRecordResult;

/** Puts a record with the KPL 1.1.1. */
public final class Before {
    public static void main(String[] arguments) throws Exception {
        ByteBuffer data = ByteBuffer.wrap(new byte[] {'1'});
        // region program
        KinesisProducerConfiguration config =
            KinesisProducerConfiguration
                .fromPropertiesFile("kpl.properties")      // 1
                .setRecordMaxBufferedTime(500)             // 2
                .setRecordTtl(60000);                      // 3
        KinesisProducer producer = new KinesisProducer(config); // 4

        FutureCallback<UserRecordResult> callback = new FutureCallback<>() { // 5
            @Override
            public void onSuccess(UserRecordResult result) {
                System.out.println("stored");
            }

            @Override
            public void onFailure(Throwable error) {
                System.out.println("failed");
            }
        };
        ListenableFuture<UserRecordResult> future =
            producer.addUserRecord("orders", "customer-7", data); // 6
        Futures.addCallback(
            future, callback, MoreExecutors.directExecutor()); // 7

        UserRecordResult result = future.get();            // 8
        System.out.println(result.getShardId());           // 9
        for (Attempt attempt : result.getAttempts())       // 10
            System.out.println(attempt.isSuccessful());    // 11

        producer.flushSync();                              // 12
        producer.destroy();                                // 13
        // endregion
    }
}
