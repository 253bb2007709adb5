import com.amazonaws.services.schemaregistry.common.AWSDeserializerInput;
import com.amazonaws.services.schemaregistry.common.AWSSerializerInput;
import com.amazonaws.services.schemaregistry.common.Schema;
import com.amazonaws.services.schemaregistry.deserializers.GlueSchemaRegistryDeserializationFacade;
import com.amazonaws.services.schemaregistry.deserializers.protobuf.ProtobufSchemaParser;
import com.amazonaws.services.schemaregistry.serializers.GlueSchemaRegistrySerializationFacade;
import com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema;
import com.google.protobuf.Descriptors;
import com.google.protobuf.DynamicMessage;
import com.google.protobuf.TextFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.io.DecoderFactory;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.services.glue.model.DataFormat;

/**
 * AWS's serializers behind standard input and output: one command a line, fields divided by tabs, values in base64.
 *
 * <p>serialize format stream schemaName schema compression value: as the serializer for Kafka; the value is JSON, or
 * Protobuf's text format after the name of the message type and a line break. encode, with a payload instead of a value: as the KPL.
 * deserialize payload. open payload: as the KCL, which gives the schema and the payload without header.
 */
public final class SchemaTool {
    private final Map<String, GlueSchemaRegistrySerializationFacade> serializers = new HashMap<>();
    private final GlueSchemaRegistryDeserializationFacade deserializer;

    private SchemaTool(String endpoint) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("region", "us-east-1");
        settings.put("endpoint", endpoint);
        settings.put("schemaAutoRegistrationEnabled", "true");
        settings.put("avroRecordType", "GENERIC_RECORD");
        settings.put("protobufMessageType", "DYNAMIC_MESSAGE");
        StaticCredentialsProvider credentials =
            StaticCredentialsProvider.create(AwsBasicCredentials.create("testing", "testing"));
        for (String compression : new String[] {"NONE", "ZLIB"}) {
            settings.put("compression", compression);
            serializers.put(compression, GlueSchemaRegistrySerializationFacade.builder()
                .credentialProvider(credentials).configs(settings).build());
        }
        deserializer = GlueSchemaRegistryDeserializationFacade.builder()
            .credentialProvider(credentials).configs(settings).build();
    }

    private static Object read(String format, String schemaName, String schema, String text) throws Exception {
        switch (format) {
            case "AVRO":
                org.apache.avro.Schema avro = new org.apache.avro.Schema.Parser().parse(schema);
                return new GenericDatumReader<>(avro).read(null, DecoderFactory.get().jsonDecoder(avro, text));
            case "JSON":
                return JsonDataWithSchema.builder(schema, text).build();
            default:
                int end = text.indexOf('\n');
                Descriptors.FileDescriptor file = ProtobufSchemaParser.parse(schema, schemaName + ".proto");
                Descriptors.Descriptor type = find(file.getMessageTypes(), text.substring(0, end));
                DynamicMessage.Builder message = DynamicMessage.newBuilder(type);
                TextFormat.merge(text.substring(end + 1), message);
                return message.build();
        }
    }

    private static Descriptors.Descriptor find(Iterable<Descriptors.Descriptor> types, String name) {
        for (Descriptors.Descriptor type : types) {
            if (type.getFullName().equals(name)) {
                return type;
            }
            Descriptors.Descriptor nested = find(type.getNestedTypes(), name);
            if (nested != null) {
                return nested;
            }
        }
        return null;
    }

    private static String shown(Object value) {
        if (value instanceof JsonDataWithSchema) {
            return ((JsonDataWithSchema) value).getPayload();
        }
        if (value instanceof DynamicMessage) {
            DynamicMessage message = (DynamicMessage) value;
            return message.getDescriptorForType().getFullName() + "\n"
                + TextFormat.printer().printToString(message);
        }
        return value.toString();
    }

    private byte[] run(String[] words) throws Exception {
        byte[] last = Base64.getDecoder().decode(words[words.length - 1]);
        switch (words[0]) {
            case "deserialize":
                return shown(deserializer.deserialize(
                    AWSDeserializerInput.builder().buffer(ByteBuffer.wrap(last)).transportName("any").build()))
                    .getBytes(StandardCharsets.UTF_8);
            case "open":
                Schema found = deserializer.getSchema(last);
                String head = found.getSchemaName() + "\n" + found.getDataFormat() + "\n";
                byte[] data = deserializer.getActualData(last);
                byte[] start = head.getBytes(StandardCharsets.UTF_8);
                return ByteBuffer.allocate(start.length + data.length).put(start).put(data).array();
            default:
                GlueSchemaRegistrySerializationFacade serializer = serializers.get(words[5]);
                String format = words[1];
                String name = words[3];
                String schema = new String(Base64.getDecoder().decode(words[4]), StandardCharsets.UTF_8);
                if (words[0].equals("encode")) {
                    return serializer.encode(words[2], new Schema(schema, format, name), last);
                }
                DataFormat known = DataFormat.valueOf(format);
                Object value = read(format, name, schema, new String(last, StandardCharsets.UTF_8));
                return serializer.serialize(known, value, serializer.getOrRegisterSchemaVersion(
                    AWSSerializerInput.builder()
                        .schemaDefinition(serializer.getSchemaDefinition(known, value))
                        .schemaName(name).transportName(words[2]).dataFormat(format).build()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        SchemaTool tool = new SchemaTool(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String answer;
            try {
                answer = "ok\t" + Base64.getEncoder().encodeToString(tool.run(line.split("\t")));
            } catch (Exception error) {
                StringBuilder causes = new StringBuilder();
                for (Throwable each = error; each != null; each = each.getCause()) {
                    causes.append(each).append(" <- ");
                }
                answer = "error\t" + Base64.getEncoder().encodeToString(
                    causes.toString().getBytes(StandardCharsets.UTF_8));
            }
            out.println(answer);
            out.flush();
        }
    }
}
