import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads all partitions of a topic from the beginning, without a group: AssignedConsumer BOOTSTRAP TOPIC PARTITIONS RECORDS.
 * Prints one line of JSON: seconds (from the first poll on), records, bytes.
 */
public class AssignedConsumer {
    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.bytes", "52428800");
        properties.put("max.poll.records", "5000");
        long wanted = Long.parseLong(arguments[3]);
        List<TopicPartition> places = new ArrayList<>();
        for (int partition = 0; partition < Integer.parseInt(arguments[2]); partition++) {
            places.add(new TopicPartition(arguments[1], partition));
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            long records = 0;
            long bytes = 0;
            long began = System.nanoTime();
            long last = began;
            while (records < wanted) {
                ConsumerRecords<byte[], byte[]> polled = consumer.poll(Duration.ofMillis(1000));
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    records++;
                    bytes += record.value().length;
                }
                if (!polled.isEmpty()) {
                    last = System.nanoTime();
                } else if (System.nanoTime() - last > 30_000_000_000L) {
                    throw new IllegalStateException("nothing came for 30 s after " + records + " records");
                }
            }
            double seconds = (System.nanoTime() - began) / 1e9;
            System.out.println("{\"seconds\": " + seconds + ", \"records\": " + records + ", \"bytes\": " + bytes + "}");
        }
    }
}
