import java.io.File;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;

import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer and a consumer at secured listeners, many at once; see tests/kafka/secured_clients.py.
 *
 * <pre>
 * in      a case a line: name, topic, seconds, settings a=b; all between characters of number 31
 *         addresses of tokens that OAUTHBEARER may read, with commas
 * out     name, tab, "ok" or the exception's class, ": ", its message and those of its causes
 * </pre>
 */
public class SecuredProgram {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "off");
        System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", arguments[2]);
        Map<String, String> answers = new ConcurrentHashMap<>();
        List<Thread> threads = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] fields = line.split("\u001f", -1);
            Thread thread = new Thread(() -> answers.put(fields[0], answer(fields)));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads)
            thread.join();
        try (PrintWriter out = new PrintWriter(new File(arguments[1]), "UTF-8")) {
            new TreeMap<>(answers).forEach((name, answer) -> out.println(name + "\t" + answer));
        }
    }

    private static String answer(String[] fields) {
        try {
            use(fields);
            return "ok";
        } catch (Exception failed) {
            Throwable cause = failed instanceof ExecutionException ? failed.getCause() : failed;
            StringBuilder said = new StringBuilder(cause.getClass().getSimpleName());
            for (; cause != null; cause = cause.getCause())
                said.append(": ").append(String.valueOf(cause.getMessage()).replaceAll("\\s+", " "));
            return said.toString();
        }
    }

    private static void use(String[] fields) throws Exception {
        String topic = fields[1];
        long waitMs = 1000 * Long.parseLong(fields[2]);
        Properties settings = new Properties();
        for (int at = 3; at < fields.length; at++) {
            int equals = fields[at].indexOf('=');
            settings.put(fields[at].substring(0, equals), fields[at].substring(equals + 1));
        }
        settings.put("max.block.ms", String.valueOf(waitMs));
        settings.put("request.timeout.ms", String.valueOf(waitMs));
        settings.put("delivery.timeout.ms", String.valueOf(waitMs));
        settings.put("default.api.timeout.ms", String.valueOf(waitMs));
        settings.put("linger.ms", "0");
        for (String what : new String[] {"key.", "value."}) {
            settings.put(what + "serializer", ByteArraySerializer.class.getName());
            settings.put(what + "deserializer", ByteArrayDeserializer.class.getName());
        }
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
            producer.send(new ProducerRecord<>(topic, 0, null, "java".getBytes())).get();
        }
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(Collections.singleton(partition));
            consumer.seek(partition, 0);
            long end = System.currentTimeMillis() + waitMs;
            while (consumer.poll(Duration.ofSeconds(1)).isEmpty())
                if (System.currentTimeMillis() > end)
                    throw new IllegalStateException("no record");
        }
    }
}
