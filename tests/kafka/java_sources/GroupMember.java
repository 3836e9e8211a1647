import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.function.Consumer;

import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/**
 * A member of a group, by a consumer of whichever Kafka release it is compiled against, from 0.9.0 on; see GroupProgram.
 *
 * It commits what it has read before it gives partitions away, and before it leaves. A commit that is asked for while the group
 * rebalances is tried again after the next poll: the client itself refuses it until then.
 *
 * <pre>
 * knows     commit     close
 * tells     assigned topic:partition,...     revoked topic:partition,...     lost topic:partition,...
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
            String[] command = null;
            while (true) {
                if (command == null)
                    command = commands.poll();
                if (command != null && commits()) {
                    if (command[0].equals("close"))
                        return;
                    tell.accept("done\tcommit");
                    command = null;
                }
                for (ConsumerRecord<byte[], byte[]> record : poll())
                    tell.accept("record\t" + record.topic() + "\t" + record.partition() + "\t" + record.offset() + "\t"
                        + (record.value() == null ? "-" : Base64.getEncoder().encodeToString(record.value())));
            }
        } finally {
            consumer.close();
        }
    }

    /** Whether it can commit what it has read; not while the group rebalances. */
    private boolean commits() {
        try {
            consumer.commitSync();
            return true;
        } catch (CommitFailedException | RebalanceInProgressException rebalancing) {
            return false;
        }
    }

    /** Of the listener since 2.4: the member was removed, or its generation has ended, so it cannot commit. */
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        tell.accept("lost\t" + text(partitions));
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
