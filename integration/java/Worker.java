import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.Reader;
import java.io.UncheckedIOException;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.http.Protocol;
import software.amazon.awssdk.http.nio.netty.NettyNioAsyncHttpClient;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.cloudwatch.CloudWatchAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.kinesis.KinesisAsyncClient;
import software.amazon.kinesis.common.ConfigsBuilder;
import software.amazon.kinesis.common.InitialPositionInStream;
import software.amazon.kinesis.common.InitialPositionInStreamExtended;
import software.amazon.kinesis.common.StreamIdentifier;
import software.amazon.kinesis.coordinator.CoordinatorConfig;
import software.amazon.kinesis.coordinator.Scheduler;
import software.amazon.kinesis.leases.LeaseManagementConfig;
import software.amazon.kinesis.lifecycle.LifecycleConfig;
import software.amazon.kinesis.lifecycle.events.InitializationInput;
import software.amazon.kinesis.lifecycle.events.LeaseLostInput;
import software.amazon.kinesis.lifecycle.events.ProcessRecordsInput;
import software.amazon.kinesis.lifecycle.events.ShardEndedInput;
import software.amazon.kinesis.lifecycle.events.ShutdownRequestedInput;
import software.amazon.kinesis.metrics.MetricsConfig;
import software.amazon.kinesis.metrics.MetricsLevel;
import software.amazon.kinesis.processor.RecordProcessorCheckpointer;
import software.amazon.kinesis.processor.ShardRecordProcessor;
import software.amazon.kinesis.processor.SingleStreamTracker;
import software.amazon.kinesis.retrieval.AggregatorUtil;
import software.amazon.kinesis.retrieval.KinesisClientRecord;
import software.amazon.kinesis.retrieval.RetrievalConfig;
import software.amazon.kinesis.retrieval.polling.PollingConfig;

/**
 * A worker of the KCL, the same source for 2.x and 3.x, which tells what it does as `journal.py` describes.
 *
 * <p>Its argument is a properties file. Keys that begin with {@code kcl.} are settings of the KCL by the names of its
 * configuration classes; a name that this version does not have is an error.
 */
public final class Worker {
    private final Properties options = new Properties();
    private final FileChannel journal;
    private final String name;
    private final boolean countOnly;
    private final double middle;
    private final Random random;
    private final Set<String> standAt = new HashSet<>();
    private final Set<String> stands = ConcurrentHashMap.newKeySet();

    private Worker(String file) throws IOException {
        try (Reader reader = Files.newBufferedReader(Path.of(file))) {
            options.load(reader);
        }
        name = option("worker");
        countOnly = Boolean.parseBoolean(option("count_only"));
        middle = Double.parseDouble(option("middle"));
        random = new Random(name.hashCode());
        standAt.addAll(Arrays.asList(option("stand_at").split(",")));
        standAt.remove("");
        journal = FileChannel.open(
                Path.of(option("journal")), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    private String option(String key) {
        String value = options.getProperty(key);
        if (value == null) {
            throw new IllegalArgumentException("the properties file lacks " + key);
        }
        return value;
    }

    public static void main(String[] arguments) throws Exception {
        new Worker(arguments[0]).run();
    }

    private void run() throws ReflectiveOperationException {
        StaticCredentialsProvider credentials =
                StaticCredentialsProvider.create(AwsBasicCredentials.create("test", "test"));
        Region region = Region.of(option("region"));
        // The fake speaks HTTP/1.1 as well, and needs no second program before it then.
        KinesisAsyncClient kinesis = KinesisAsyncClient.builder()
                .endpointOverride(URI.create(option("kinesis"))).region(region).credentialsProvider(credentials)
                .httpClientBuilder(NettyNioAsyncHttpClient.builder().protocol(Protocol.HTTP1_1).maxConcurrency(200))
                .build();
        DynamoDbAsyncClient dynamodb = DynamoDbAsyncClient.builder()
                .endpointOverride(URI.create(option("dynamodb"))).region(region).credentialsProvider(credentials).build();
        CloudWatchAsyncClient cloudwatch = CloudWatchAsyncClient.builder()
                .endpointOverride(URI.create(option("kinesis"))).region(region).credentialsProvider(credentials).build();
        String stream = option("stream");
        SingleStreamTracker tracker = new SingleStreamTracker(
                StreamIdentifier.singleStreamInstance(stream),
                InitialPositionInStreamExtended.newInitialPosition(InitialPositionInStream.TRIM_HORIZON));
        ConfigsBuilder configs = new ConfigsBuilder(
                tracker, option("application"), kinesis, dynamodb, cloudwatch, name, Processor::new);
        CoordinatorConfig coordinator = configs.coordinatorConfig();
        LeaseManagementConfig leases = configs.leaseManagementConfig();
        PollingConfig polling = new PollingConfig(stream, kinesis);
        List<Object> configurations = new ArrayList<>(Arrays.asList(coordinator, leases, polling));
        for (String part : Arrays.asList("workerUtilizationAwareAssignmentConfig", "gracefulLeaseHandoffConfig")) {
            for (Method getter : leases.getClass().getMethods()) {
                if (getter.getName().equals(part) && getter.getParameterCount() == 0) {
                    configurations.add(getter.invoke(leases));
                }
            }
        }
        for (String key : options.stringPropertyNames()) {
            if (key.startsWith("kcl.")) {
                set(configurations, key.substring("kcl.".length()), option(key));
            }
        }
        LifecycleConfig lifecycle = configs.lifecycleConfig();
        if (!option("aggregator_util").isEmpty()) {
            lifecycle = lifecycle.aggregatorUtil((AggregatorUtil)
                    Class.forName(option("aggregator_util")).getDeclaredConstructor().newInstance());
        }
        MetricsConfig metrics = configs.metricsConfig().metricsLevel(MetricsLevel.NONE);
        RetrievalConfig retrieval = configs.retrievalConfig().retrievalSpecificConfig(polling);
        Scheduler scheduler = new Scheduler(
                configs.checkpointConfig(), coordinator, leases, lifecycle, metrics,
                configs.processorConfig(), retrieval);
        long grace = Long.parseLong(option("grace_millis"));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(scheduler, grace)));
        scheduler.run();
    }

    private static void stop(Scheduler scheduler, long grace) {
        if (grace == 0) {
            return;
        }
        try {
            scheduler.startGracefulShutdown().get(grace, TimeUnit.MILLISECONDS);
        } catch (Exception error) {
            System.err.println("stopped without an end in order: " + error);
        }
    }

    private static void set(List<Object> configurations, String key, String value) throws ReflectiveOperationException {
        for (Object configuration : configurations) {
            for (Method method : configuration.getClass().getMethods()) {
                if (method.getName().equals(key) && method.getParameterCount() == 1) {
                    method.invoke(configuration, convert(value, method.getParameterTypes()[0]));
                    return;
                }
            }
        }
        throw new IllegalArgumentException("this version of the KCL has no setting " + key);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static Object convert(String value, Class<?> type) {
        if (type == long.class || type == Long.class) {
            return Long.parseLong(value);
        }
        if (type == int.class || type == Integer.class) {
            return Integer.parseInt(value);
        }
        if (type == double.class) {
            return Double.parseDouble(value);
        }
        if (type == boolean.class) {
            return Boolean.parseBoolean(value);
        }
        if (type == Duration.class) {
            return Duration.ofMillis(Long.parseLong(value));
        }
        if (type.isEnum()) {
            return Enum.valueOf((Class<Enum>) type, value);
        }
        throw new IllegalArgumentException("no way to write a " + type.getName() + " as text");
    }

    private static String text(String value) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char letter : value.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                quoted.append('\\').append(letter);
            } else if (letter < ' ') {
                quoted.append(String.format("\\u%04x", (int) letter));
            } else {
                quoted.append(letter);
            }
        }
        return quoted.append('"').toString();
    }

    private static String position(String number, long sub) {
        return ",\"position\":[" + text(number) + "," + sub + "]";
    }

    /** Appends one event. Both clocks, this one and Python's, are the machine's monotonic clock. */
    private synchronized void tell(String event, String shard, String fields) {
        String line = String.format(Locale.ROOT, "{\"t\":%.6f,\"worker\":%s,\"event\":\"%s\",\"shard\":%s%s}%n",
                System.nanoTime() / 1e9, text(name), event, text(shard), fields);
        try {
            journal.write(ByteBuffer.wrap(line.getBytes(UTF_8)));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private interface Storing {
        void store() throws Exception;
    }

    private final class Processor implements ShardRecordProcessor {
        private String shard;

        @Override
        public void initialize(InitializationInput input) {
            shard = input.shardId();
            tell("initialize", shard, position(
                    input.extendedSequenceNumber().sequenceNumber(), input.extendedSequenceNumber().subSequenceNumber()));
        }

        @Override
        public void processRecords(ProcessRecordsInput input) {
            List<KinesisClientRecord> records = input.records();
            if (records.isEmpty()) {
                return;
            }
            if (countOnly) {
                long size = 0;
                for (KinesisClientRecord record : records) {
                    size += record.data().remaining();
                }
                if (stored(() -> input.checkpointer().checkpoint())) {
                    tell("counted", shard, ",\"count\":" + records.size() + ",\"size\":" + size);
                }
                return;
            }
            StringBuilder told = new StringBuilder(",\"records\":[");
            List<String> data = new ArrayList<>();
            for (KinesisClientRecord record : records) {
                data.add(UTF_8.decode(record.data().duplicate()).toString());
                told.append(told.charAt(told.length() - 1) == '[' ? "[" : ",[").append(text(record.sequenceNumber()))
                        .append(',').append(record.subSequenceNumber()).append(',').append(text(data.get(data.size() - 1)))
                        .append(',').append(text(record.partitionKey())).append(']');
            }
            tell("records", shard, told.append(']').toString());
            String stored = "";
            if (!stands.contains(shard)) {
                int at = records.size() - 1;
                synchronized (random) {
                    if (random.nextDouble() < middle) {
                        at = random.nextInt(records.size());
                    }
                }
                boolean isStand = false;
                for (int number = 0; number < records.size() && !isStand; number++) {
                    isStand = standAt.contains(data.get(number));
                    at = isStand ? number : at;
                }
                String number = records.get(at).sequenceNumber();
                long sub = records.get(at).subSequenceNumber();
                if (!stored(() -> input.checkpointer().checkpoint(number, sub))) {
                    return;
                }
                stored = position(number, sub);
                if (isStand) {
                    stands.add(shard);
                    tell("stood", shard, stored);
                }
            }
            tell("processed", shard, stored);
        }

        private boolean stored(Storing storing) {
            try {
                storing.store();
                return true;
            } catch (Exception error) {
                tell("refused", shard, ",\"error\":" + text(error.getClass().getSimpleName()));
                return false;
            }
        }

        @Override
        public void leaseLost(LeaseLostInput input) {
            // The KCL calls this also where the lease was lost before `initialize`.
            if (shard != null) {
                tell("lease_lost", shard, "");
            }
        }

        @Override
        public void shardEnded(ShardEndedInput input) {
            if (stored(() -> input.checkpointer().checkpoint())) {
                tell("shard_ended", shard, "");
            }
        }

        @Override
        public void shutdownRequested(ShutdownRequestedInput input) {
            RecordProcessorCheckpointer checkpointer = input.checkpointer();
            if (stands.contains(shard) || stored(() -> checkpointer.checkpoint())) {
                tell("shutdown_requested", shard, "");
            }
        }
    }
}
