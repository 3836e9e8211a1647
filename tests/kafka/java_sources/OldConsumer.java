import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.function.Consumer;

import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.consumer.ConsumerTimeoutException;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.message.MessageAndMetadata;

/**
 * The consumer before KafkaConsumer, which finds brokers and its partitions through ZooKeeper, of Kafka 0.9.0.1: it reads a topic from
 * its beginning until it is told to close; see GroupProgram. It needs the jars of a broker.
 *
 * <pre>
 * topics    topic, number of partitions        the number is for RecordReader alone
 * knows     close
 * tells     read partition offset timestamp value      the timestamp is -1
 *           done close
 * </pre>
 */
public class OldConsumer implements Runnable {
    private final ConsumerConnector connector;
    private final String topic;
    private final BlockingQueue<String[]> commands;
    private final Consumer<String> tell;

    public OldConsumer(Properties settings, String[] topics, BlockingQueue<String[]> commands, Consumer<String> tell) {
        this.connector = kafka.consumer.Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
        this.topic = topics[0];
        this.commands = commands;
        this.tell = tell;
    }

    @Override
    public void run() {
        try {
            ConsumerIterator<byte[], byte[]> found =
                connector.createMessageStreams(Collections.singletonMap(topic, 1)).get(topic).get(0).iterator();
            while (commands.poll() == null)
                try {
                    if (!found.hasNext())
                        break;
                    MessageAndMetadata<byte[], byte[]> record = found.next();
                    tell.accept("read\t" + record.partition() + "\t" + record.offset() + "\t-1\t"
                        + new String(record.message(), StandardCharsets.UTF_8));
                } catch (ConsumerTimeoutException nothing) {
                    continue;
                }
        } finally {
            connector.shutdown();
        }
        tell.accept("done\tclose");
    }
}
