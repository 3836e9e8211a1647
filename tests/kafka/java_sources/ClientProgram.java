import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer and a consumer of whichever Kafka release is on the class path, from 0.10.2 on; see tests/kafka/java_clients.py.
 * Compiled against that release each time. What not all have (headers, the two ways to say how long poll waits) is found
 * by name.
 *
 * <pre>
 * command, a line of fields between tabs; settings are a=b;c=d
 *     produce settings topic partition count batch
 *                                                then count lines: timestamp or -, key, value, headers name=value,...
 *                                                what lingers is sent after each batch records
 *     consume settings topic:partition ...       from the beginning to the end that there is at the start
 *     times settings topic:partition:timestamp ...      asked in one request
 *     ends settings topic:partition ...
 * answers
 *     produced topic partition offset timestamp  one for each record, in order
 *     record topic partition offset timestamp type key value headers
 *     time topic partition timestamp offset timestamp      or none none
 *     ends topic partition beginning end
 *     error command the exception's class message          instead of, or after, a command's other answers
 *     done command
 * </pre>
 *
 * Bytes are in base64, "-" is null.
 */
public class ClientProgram {
    private static final long WAIT_MS = 20_000;
    private static PrintWriter out;

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        String bootstrap = arguments[0];
        try (BufferedReader in = new BufferedReader(new FileReader(arguments[1]));
             PrintWriter answers = new PrintWriter(new File(arguments[2]), "UTF-8")) {
            out = answers;
            String line;
            while ((line = in.readLine()) != null) {
                String[] fields = line.split("\t", -1);
                Properties settings = settings(bootstrap, fields[0].equals("produce"), fields[1]);
                List<String[]> rows = new ArrayList<>();
                if (fields[0].equals("produce"))
                    for (int left = Integer.parseInt(fields[4]); left > 0; left--)
                        rows.add(in.readLine().split("\t", -1));
                try {
                    if (fields[0].equals("produce"))
                        produce(settings, fields[2], Integer.parseInt(fields[3]), rows, Integer.parseInt(fields[5]));
                    else
                        ask(fields, settings);
                } catch (Exception failed) {
                    Throwable cause = failed instanceof ExecutionException ? failed.getCause() : failed;
                    answer("error", fields[0], cause.getClass().getSimpleName(), String.valueOf(cause.getMessage()).replaceAll("\\s+", " "));
                }
                answer("done", fields[0]);
            }
        }
    }

    private static Properties settings(String bootstrap, boolean producer, String given) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        for (String what : new String[] {"key.", "value."})
            if (producer)
                settings.put(what + "serializer", ByteArraySerializer.class.getName());
            else
                settings.put(what + "deserializer", ByteArrayDeserializer.class.getName());
        if (!producer) {
            settings.put("enable.auto.commit", "false");
            settings.put("auto.offset.reset", "none");
        }
        for (String setting : given.isEmpty() ? new String[0] : given.split(";")) {
            int at = setting.indexOf('=');
            settings.put(setting.substring(0, at), setting.substring(at + 1));
        }
        return settings;
    }

    private static void produce(Properties settings, String topic, int partition, List<String[]> rows, int batch) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            for (String[] row : rows) {
                Long timestamp = row[0].equals("-") ? null : Long.valueOf(row[0]);
                ProducerRecord<byte[], byte[]> record =
                    new ProducerRecord<>(topic, partition, timestamp, bytes(row[1]), bytes(row[2]));
                if (!row[3].isEmpty())
                    for (String header : row[3].split(",")) {
                        int at = header.indexOf('=');
                        addHeader(record, header.substring(0, at), bytes(header.substring(at + 1)));
                    }
                sent.add(producer.send(record));
                if (sent.size() % batch == 0)
                    producer.flush();
            }
            producer.flush();
        }
        for (Future<RecordMetadata> future : sent) {
            RecordMetadata metadata = future.get();
            answer("produced", metadata.topic(), metadata.partition(), metadata.offset(), metadata.timestamp());
        }
    }

    private static void ask(String[] fields, Properties settings) throws Exception {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            List<TopicPartition> partitions = new ArrayList<>();
            Map<TopicPartition, Long> times = new HashMap<>();
            for (int i = 2; i < fields.length; i++) {
                String[] parts = fields[i].split(":");
                partitions.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
                if (parts.length > 2)
                    times.put(partitions.get(i - 2), Long.valueOf(parts[2]));
            }
            switch (fields[0]) {
                case "consume":
                    consume(consumer, partitions);
                    break;
                case "times":
                    Map<TopicPartition, OffsetAndTimestamp> all = consumer.offsetsForTimes(times);
                    for (TopicPartition each : partitions) {
                        OffsetAndTimestamp found = all.get(each);
                        answer("time", each.topic(), each.partition(), times.get(each), found == null ? "none" : found.offset(),
                            found == null ? "none" : found.timestamp());
                    }
                    break;
                default:
                    Map<TopicPartition, Long> beginnings = consumer.beginningOffsets(partitions);
                    Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
                    for (TopicPartition each : partitions)
                        answer("ends", each.topic(), each.partition(), beginnings.get(each), ends.get(each));
            }
        }
    }

    private static void consume(KafkaConsumer<byte[], byte[]> consumer, List<TopicPartition> partitions) throws Exception {
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        Map<TopicPartition, Long> ends = new HashMap<>(consumer.endOffsets(partitions));
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (true) {
            for (TopicPartition partition : new ArrayList<>(ends.keySet()))
                if (consumer.position(partition) >= ends.get(partition))
                    ends.remove(partition);
            if (ends.isEmpty())
                return;
            if (System.currentTimeMillis() > deadline)
                throw new IllegalStateException("never got to the ends of " + ends);
            for (ConsumerRecord<byte[], byte[]> record : poll(consumer))
                answer("record", record.topic(), record.partition(), record.offset(), record.timestamp(), record.timestampType(),
                    text(record.key()), text(record.value()), headers(record));
        }
    }

    @SuppressWarnings("unchecked")
    private static ConsumerRecords<byte[], byte[]> poll(KafkaConsumer<byte[], byte[]> consumer) throws Exception {
        try {
            Class<?> duration = Class.forName("java.time.Duration");
            Method poll = KafkaConsumer.class.getMethod("poll", duration);
            return (ConsumerRecords<byte[], byte[]>) invoke(poll, consumer, duration.getMethod("ofMillis", long.class).invoke(null, 500L));
        } catch (NoSuchMethodException before20) {
            return (ConsumerRecords<byte[], byte[]>) invoke(KafkaConsumer.class.getMethod("poll", long.class), consumer, 500L);
        }
    }

    private static Object invoke(Method method, Object target, Object argument) throws Exception {
        try {
            return method.invoke(target, argument);
        } catch (java.lang.reflect.InvocationTargetException thrown) {
            throw (Exception) thrown.getCause();
        }
    }

    private static void addHeader(ProducerRecord<byte[], byte[]> record, String name, byte[] value) throws Exception {
        Object headers = ProducerRecord.class.getMethod("headers").invoke(record);
        Class.forName("org.apache.kafka.common.header.Headers").getMethod("add", String.class, byte[].class).invoke(headers, name, value);
    }

    private static String headers(ConsumerRecord<byte[], byte[]> record) throws Exception {
        Method all;
        try {
            all = ConsumerRecord.class.getMethod("headers");
        } catch (NoSuchMethodException before011) {
            return "";
        }
        Class<?> header = Class.forName("org.apache.kafka.common.header.Header");
        List<String> texts = new ArrayList<>();
        for (Object each : (Iterable<?>) all.invoke(record))
            texts.add(header.getMethod("key").invoke(each) + "=" + text((byte[]) header.getMethod("value").invoke(each)));
        return String.join(",", texts);
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    private static void answer(Object... fields) {
        List<String> texts = new ArrayList<>();
        for (Object field : fields)
            texts.add(String.valueOf(field));
        out.println(String.join("\t", texts));
    }
}
