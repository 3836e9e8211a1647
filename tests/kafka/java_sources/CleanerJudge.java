import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.IOException;
import java.io.PrintWriter;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogToClean;
import kafka.log.UnifiedLog;
import kafka.log.UnifiedLog$;
import kafka.server.BrokerTopicStats;
import scala.Option;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;

/**
 * Has Kafka's own Cleaner compact logs at given times; see tests/interop/test_compaction.py.
 *
 * <pre>
 * question, a line of fields between tabs
 *     folder of the partition, closed cleanly | topic properties, a=b;c=d | slots of the offset map | time it is, ms
 *     | passes: first dirty offset : time it is for the cleaner, more of them behind a comma
 * verdict, a line for each pass
 *     end offset, records read, records kept, bytes read, bytes kept, records without a key; or the exception
 * </pre>
 */
public class CleanerJudge {
    private static final long DAY_MS = 86_400_000L;

    public static void main(String[] arguments) throws Exception {
        try (BufferedReader in = new BufferedReader(new FileReader(arguments[0])); PrintWriter out = new PrintWriter(arguments[1])) {
            String line;
            while ((line = in.readLine()) != null)
                judge(line.split("\t"), out);
        }
    }

    private static void judge(String[] question, PrintWriter out) throws Exception {
        File folder = new File(question[0]);
        Map<String, String> properties = new HashMap<>();
        for (String property : question[1].split(";")) {
            int at = property.indexOf('=');
            properties.put(property.substring(0, at), property.substring(at + 1));
        }
        Time time = new StoppedTime(Long.parseLong(question[3]));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try {
            UnifiedLog log = UnifiedLog$.MODULE$.apply(folder, new LogConfig(properties), 0L, 0L, scheduler,
                new BrokerTopicStats(false), time, 5 * 60 * 1000, new ProducerStateManagerConfig((int) DAY_MS, false), 600_000,
                new LogDirFailureChannel(1), true, Option.empty(), true, new ConcurrentHashMap<>(), false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            log.updateHighWatermark(log.logEndOffset());
            for (String pass : question[4].split(",")) {
                int at = pass.indexOf(':');
                Cleaner cleaner = cleaner(Integer.parseInt(question[2]), time);
                LogToClean cleanable = new LogToClean(log.topicPartition(), log, Long.parseLong(pass.substring(0, at)),
                    log.activeSegment().baseOffset(), false);
                try {
                    Tuple2<Object, CleanerStats> done = cleaner.doClean(cleanable, Long.parseLong(pass.substring(at + 1)));
                    CleanerStats stats = done._2();
                    out.println(done._1() + " " + stats.messagesRead() + " " + stats.messagesWritten() + " " + stats.bytesRead()
                        + " " + stats.bytesWritten() + " " + stats.invalidMessagesRead());
                } catch (Exception error) {
                    out.println(error);
                }
            }
            log.close();
        } finally {
            scheduler.shutdown();
        }
    }

    private static Cleaner cleaner(int slots, Time time) throws Exception {
        Throttler throttler = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "throttler", "entries", time);
        return new Cleaner(0, new SkimpyOffsetMap(24 * slots), 64 * 1024, 64 * 1024, 0.9, throttler, time,
            (TopicPartition partition) -> BoxedUnit.UNIT);
    }

    /** Tells always the same time. */
    private record StoppedTime(long milliseconds) implements Time {
        @Override
        public long nanoseconds() {
            return milliseconds * 1_000_000L;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }
}
