import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/**
 * A producer that writes numbered records to the first partitions of a topic until it is told to close; of whichever Kafka release
 * from 0.9.0 on it is compiled against; see GroupProgram. What fails is sent again, as applications of that time did: a record may
 * be there twice, none is left out.
 *
 * <pre>
 * topics    topic, number of partitions
 * knows     close
 * tells     acked partition offset value       the value is the client.id and a number
 *           failed class message               before it is sent again
 *           done close
 * </pre>
 */
public class RecordWriter implements Runnable {
    private static final int AT_ONCE = 3;
    private static final long PAUSE_MS = 50;
    private static final long PATIENCE_S = 30;

    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final int partitions;
    private final String name;
    private final BlockingQueue<String[]> commands;
    private final Consumer<String> tell;
    private int number;

    public RecordWriter(Properties settings, String[] topics, BlockingQueue<String[]> commands, Consumer<String> tell) {
        for (String what : new String[] {"key.", "value."})
            settings.put(what + "serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        this.producer = new KafkaProducer<>(settings);
        this.topic = topics[0];
        this.partitions = Integer.parseInt(topics[1]);
        this.name = settings.getProperty("client.id");
        this.commands = commands;
        this.tell = tell;
    }

    @Override
    public void run() {
        try {
            while (commands.poll() == null) {
                for (int partition = 0; partition < partitions; partition++) {
                    List<String> values = new ArrayList<>();
                    for (int i = 0; i < AT_ONCE; i++)
                        values.add(name + " " + number++);
                    while (!values.isEmpty())
                        values = write(partition, values);
                }
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException impossible) {
            throw new IllegalStateException(impossible);
        } finally {
            producer.close();
        }
        tell.accept("done\tclose");
    }

    /** Returns what is not acknowledged. */
    private List<String> write(int partition, List<String> values) throws InterruptedException {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        List<String> left = new ArrayList<>();
        for (String value : values)
            try {
                sent.add(producer.send(new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8))));
            } catch (RuntimeException thrown) { // 0.9.0.1 does that to who writes while a batch is about to be sent again.
                sent.add(null);
                fail(thrown);
            }
        for (int i = 0; i < values.size(); i++)
            try {
                if (sent.get(i) == null)
                    left.add(values.get(i));
                else
                    tell.accept("acked\t" + partition + "\t" + sent.get(i).get(PATIENCE_S, TimeUnit.SECONDS).offset() + "\t" + values.get(i));
            } catch (ExecutionException thrown) {
                left.add(values.get(i));
                fail(thrown.getCause());
            } catch (TimeoutException thrown) {
                left.add(values.get(i));
                fail(thrown);
            }
        if (!left.isEmpty())
            Thread.sleep(PAUSE_MS);
        return left;
    }

    private void fail(Throwable thrown) {
        tell.accept("failed\t" + thrown.getClass().getSimpleName() + "\t" + String.valueOf(thrown.getMessage()).replaceAll("\\s+", " "));
    }
}
