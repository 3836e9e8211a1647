import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.function.Consumer;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * A member of a group, by a consumer of whichever Kafka release it is compiled against, from 0.9.0 on; see GroupProgram.
 *
 * It commits what it has read before it gives partitions away, and before it leaves.
 *
 * <pre>
 * knows     commit     close
 * tells     assigned topic:partition,...     revoked topic:partition,...
 *           record topic partition offset value           in base64
 *           done commit
 * </pre>
 */
public class GroupMember implements Runnable, ConsumerRebalanceListener {
    private static final long POLL_MS = 200;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final String[] topics;
    private final BlockingQueue<String[]> commands;
    private final Consumer<String> tell;

    public GroupMember(Properties settings, String[] topics, BlockingQueue<String[]> commands, Consumer<String> tell) {
        for (String what : new String[] {"key.", "value."})
            settings.put(what + "deserializer", "org.apache.kafka.common.serialization.ByteArrayDeserializer");
        this.consumer = new KafkaConsumer<>(settings);
        this.topics = topics;
        this.commands = commands;
        this.tell = tell;
    }

    @Override
    public void run() {
        try {
            consumer.subscribe(Arrays.asList(topics), this);
            while (true) {
                String[] command = commands.poll();
                if (command != null && command[0].equals("close")) {
                    consumer.commitSync();
                    return;
                }
                if (command != null) {
                    consumer.commitSync();
                    tell.accept("done\tcommit");
                }
                for (ConsumerRecord<byte[], byte[]> record : poll())
                    tell.accept("record\t" + record.topic() + "\t" + record.partition() + "\t" + record.offset() + "\t"
                        + (record.value() == null ? "-" : Base64.getEncoder().encodeToString(record.value())));
            }
        } finally {
            consumer.close();
        }
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        if (!partitions.isEmpty())
            consumer.commitSync();
        tell.accept("revoked\t" + text(partitions));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        tell.accept("assigned\t" + text(partitions));
    }

    private static String text(Collection<TopicPartition> partitions) {
        StringBuilder text = new StringBuilder();
        for (TopicPartition each : partitions)
            text.append(text.length() == 0 ? "" : ",").append(each.topic()).append(":").append(each.partition());
        return text.toString();
    }

    @SuppressWarnings("unchecked")
    private ConsumerRecords<byte[], byte[]> poll() {
        try {
            try {
                Method poll = KafkaConsumer.class.getMethod("poll", java.time.Duration.class);
                return (ConsumerRecords<byte[], byte[]>) poll.invoke(consumer, java.time.Duration.ofMillis(POLL_MS));
            } catch (NoSuchMethodException before20) {
                return (ConsumerRecords<byte[], byte[]>) KafkaConsumer.class.getMethod("poll", long.class).invoke(consumer, POLL_MS);
            }
        } catch (InvocationTargetException thrown) {
            throw (RuntimeException) thrown.getCause();
        } catch (ReflectiveOperationException impossible) {
            throw new IllegalStateException(impossible);
        }
    }
}
