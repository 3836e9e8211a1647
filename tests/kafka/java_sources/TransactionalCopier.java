import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;

import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Copies a topic's records to another, exactly once: what tests/broker/eos/copier.py does, by Apache Kafka's clients.
 *
 * Arguments: bootstrap, source, target, group, transactional id, seed, share of the transactions that are aborted on purpose,
 * assignor's class. Output and the status of one that is fenced are as there.
 */
public class TransactionalCopier {
    private static final int FENCED = 3;
    private static volatile boolean ends;

    private final String source;
    private final String target;
    private final double abortShare;
    private final Random random;
    private final KafkaProducer<byte[], byte[]> producer;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Set<Integer> assigned = new TreeSet<>();

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Thread copying = Thread.currentThread();
        TransactionalCopier copier = new TransactionalCopier(arguments);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends = true;
            try {
                copying.join(50_000);
            } catch (InterruptedException gone) {
                // The process ends as it is.
            }
        }));
        int status = 0;
        try {
            copier.run();
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException fatal) {
            tell("fenced " + fatal.getClass().getSimpleName());
            status = FENCED;
        } catch (Throwable failed) {
            failed.printStackTrace();
            status = 1;
        }
        // Not exit: it would wait for the hook, and the hook for this thread.
        Runtime.getRuntime().halt(status);
    }

    private TransactionalCopier(String[] arguments) {
        source = arguments[1];
        target = arguments[2];
        random = new Random(Long.parseLong(arguments[5]));
        abortShare = Double.parseDouble(arguments[6]);
        Properties common = new Properties();
        common.put("bootstrap.servers", arguments[0]);
        common.put("reconnect.backoff.max.ms", "200");
        Properties producing = new Properties();
        producing.putAll(common);
        producing.put("transactional.id", arguments[4]);
        producing.put("transaction.timeout.ms", "10000");
        producing.put("key.serializer", ByteArraySerializer.class.getName());
        producing.put("value.serializer", ByteArraySerializer.class.getName());
        Properties consuming = new Properties();
        consuming.putAll(common);
        consuming.put("group.id", arguments[3]);
        consuming.put("enable.auto.commit", "false");
        consuming.put("auto.offset.reset", "earliest");
        consuming.put("isolation.level", "read_committed");
        consuming.put("partition.assignment.strategy", arguments[7]);
        // Shorter ones end on a busy machine while nothing is wrong, and each end aborts a transaction.
        consuming.put("session.timeout.ms", "4000");
        consuming.put("heartbeat.interval.ms", "200");
        consuming.put("max.poll.records", "100");
        consuming.put("key.deserializer", ByteArrayDeserializer.class.getName());
        consuming.put("value.deserializer", ByteArrayDeserializer.class.getName());
        producer = new KafkaProducer<>(producing);
        consumer = new KafkaConsumer<>(consuming);
    }

    private void run() {
        insist(producer::initTransactions);
        consumer.subscribe(Set.of(source), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                partitions.forEach(each -> assigned.add(each.partition()));
                StringBuilder all = new StringBuilder("assigned");
                assigned.forEach(each -> all.append(' ').append(each));
                tell(all.toString());
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                partitions.forEach(each -> assigned.remove(each.partition()));
            }
        });
        tell("ready");
        while (!ends) {
            ConsumerRecords<byte[], byte[]> batch = consumer.poll(Duration.ofMillis(100));
            if (!batch.isEmpty())
                copy(batch);
        }
        consumer.close();
        producer.close();
    }

    private void copy(ConsumerRecords<byte[], byte[]> batch) {
        String reason = "wanted";
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : batch) {
                String value = new String(record.value(), StandardCharsets.UTF_8) + ":" + record.offset();
                producer.send(new ProducerRecord<>(target, record.partition(), record.key(), value.getBytes(StandardCharsets.UTF_8)));
                offsets.put(new TopicPartition(source, record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            if (random.nextDouble() >= abortShare) {
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                insist(producer::commitTransaction);
                tell("committed " + batch.count());
                return;
            }
            producer.flush();
        } catch (ProducerFencedException | OutOfOrderSequenceException | AuthorizationException | UnsupportedVersionException fatal) {
            throw fatal;
        } catch (KafkaException failed) {
            reason = failed.getClass().getSimpleName();
        }
        insist(producer::abortTransaction);
        for (TopicPartition partition : batch.partitions())
            if (assigned.contains(partition.partition()))
                consumer.seek(partition, batch.records(partition).get(0).offset());
        tell("aborted " + reason);
    }

    /** Calls again what found no broker in its time. */
    private static void insist(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException gone) {
                continue;
            }
        }
    }

    private static void tell(String words) {
        System.out.println(words);
        System.out.flush();
    }
}
