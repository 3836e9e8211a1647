import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts words by Kafka Streams with exactly_once_v2: lines of one topic, repartitioned by word, counts in a changelog and a topic.
 *
 * Arguments: bootstrap, application id, topic of lines, topic of counts, state folder. It prints the name of each state that it
 * is in, and ends at SIGTERM.
 */
public class WordCount {
    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        // Each count is a record, not only the last one before a commit.
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("num.stream.threads", "2");
        settings.put("replication.factor", "1");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("reconnect.backoff.max.ms", "200");
        settings.put("transaction.timeout.ms", "10000");
        settings.put("default.key.serde", Serdes.String().getClass().getName());
        settings.put("default.value.serde", Serdes.String().getClass().getName());

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(arguments[2])
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as(Stores.inMemoryKeyValueStore("count")))
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch failed = new CountDownLatch(1);
        CountDownLatch ended = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            System.out.println("state " + now);
            if (now == KafkaStreams.State.ERROR)
                failed.countDown();
            if (now == KafkaStreams.State.NOT_RUNNING)
                ended.countDown();
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try {
                // close may return before its last state was told
                if (streams.close(Duration.ofSeconds(50)))
                    ended.await(5, TimeUnit.SECONDS);
            } catch (InterruptedException gone) {
                // The process ends as it is.
            }
        }));
        streams.start();
        failed.await();
        Runtime.getRuntime().halt(1);
    }
}
