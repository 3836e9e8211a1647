import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.Consumer;

import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * A transactional producer of whichever Kafka release it is compiled against, from 0.11.0 on; see GroupProgram.
 *
 * <pre>
 * knows     init     begin     commit     abort     flush     close
 *           send topic partition value                        value is a text
 *           offsets group topic partition offset              to the transaction
 * tells     done word [offset of a record sent ...]           the offsets with flush and commit
 *           failed word class message
 * </pre>
 */
public class TransactionMember implements Runnable {
    private final KafkaProducer<byte[], byte[]> producer;
    private final BlockingQueue<String[]> commands;
    private final Consumer<String> tell;
    private final List<Future<RecordMetadata>> sent = new ArrayList<>();

    public TransactionMember(Properties settings, String[] topics, BlockingQueue<String[]> commands, Consumer<String> tell) {
        for (String what : new String[] {"key.", "value."})
            settings.put(what + "serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        this.producer = new KafkaProducer<>(settings);
        this.commands = commands;
        this.tell = tell;
    }

    @Override
    public void run() {
        try {
            while (true) {
                String[] command = commands.take();
                if (command[0].equals("close"))
                    return;
                try {
                    tell.accept("done\t" + command[0] + perform(command));
                } catch (Exception thrown) {
                    Throwable cause = thrown;
                    while (cause instanceof ExecutionException || cause instanceof java.lang.reflect.InvocationTargetException)
                        cause = cause.getCause();
                    tell.accept("failed\t" + command[0] + "\t" + cause.getClass().getSimpleName() + "\t"
                        + String.valueOf(cause.getMessage()).replaceAll("\\s+", " "));
                }
            }
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        } finally {
            producer.close();
        }
    }

    private String perform(String[] command) throws Exception {
        switch (command[0]) {
            case "init":
                producer.initTransactions();
                return "";
            case "begin":
                producer.beginTransaction();
                return "";
            case "send":
                byte[] value = command[3].getBytes(StandardCharsets.UTF_8);
                sent.add(producer.send(new ProducerRecord<>(command[1], Integer.valueOf(command[2]), null, value)));
                return "";
            case "offsets":
                TopicPartition place = new TopicPartition(command[2], Integer.parseInt(command[3]));
                sendOffsets(Collections.singletonMap(place, new OffsetAndMetadata(Long.parseLong(command[4]))), command[1]);
                return "";
            case "flush":
                producer.flush();
                return offsets();
            case "commit":
                producer.commitTransaction();
                return offsets();
            case "abort":
                producer.abortTransaction();
                sent.clear();
                return "";
            default:
                throw new IllegalArgumentException(command[0]);
        }
    }

    private String offsets() throws Exception {
        StringBuilder text = new StringBuilder();
        for (Future<RecordMetadata> future : sent)
            text.append("\t").append(future.get().offset());
        sent.clear();
        return text.toString();
    }

    private void sendOffsets(Map<TopicPartition, OffsetAndMetadata> offsets, String group) throws Exception {
        try {
            Class<?> metadata = Class.forName("org.apache.kafka.clients.consumer.ConsumerGroupMetadata");
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, metadata)
                .invoke(producer, offsets, metadata.getConstructor(String.class).newInstance(group));
        } catch (ClassNotFoundException | NoSuchMethodException before25) {
            KafkaProducer.class.getMethod("sendOffsetsToTransaction", Map.class, String.class).invoke(producer, offsets, group);
        }
    }
}
