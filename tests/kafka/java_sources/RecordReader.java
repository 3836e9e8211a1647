import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.function.Consumer;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * A consumer without a group that reads the first partitions of a topic from their beginnings until it is told to close; of
 * whichever Kafka release from 0.9.0 to 3.9 it is compiled against; see GroupProgram.
 *
 * <pre>
 * topics    topic, number of partitions
 * knows     close
 * tells     read partition offset timestamp value      timestamp is -1 where the release knows none
 *           done close
 * </pre>
 */
public class RecordReader implements Runnable {
    private static final long POLL_MS = 200;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<TopicPartition> places = new ArrayList<>();
    private final BlockingQueue<String[]> commands;
    private final Consumer<String> tell;

    public RecordReader(Properties settings, String[] topics, BlockingQueue<String[]> commands, Consumer<String> tell) {
        for (String what : new String[] {"key.", "value."})
            settings.put(what + "deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        this.consumer = new KafkaConsumer<>(settings);
        for (int partition = 0; partition < Integer.parseInt(topics[1]); partition++)
            places.add(new TopicPartition(topics[0], partition));
        this.commands = commands;
        this.tell = tell;
    }

    @Override
    public void run() {
        try {
            consumer.assign(places);
            for (TopicPartition place : places)
                consumer.seek(place, 0);
            while (commands.poll() == null)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL_MS))
                    tell.accept("read\t" + record.partition() + "\t" + record.offset() + "\t" + timestamp(record) + "\t"
                        + new String(record.value(), StandardCharsets.UTF_8));
        } finally {
            consumer.close();
        }
        tell.accept("done\tclose");
    }

    /** A release before 0.10.0 has none. */
    private static long timestamp(ConsumerRecord<byte[], byte[]> record) {
        try {
            Method method = ConsumerRecord.class.getMethod("timestamp");
            return (Long) method.invoke(record);
        } catch (NoSuchMethodException missing) {
            return -1;
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
