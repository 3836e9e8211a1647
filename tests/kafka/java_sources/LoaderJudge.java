import java.io.BufferedReader;
import java.io.File;
import java.io.FileReader;
import java.io.PrintWriter;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

import kafka.log.UnifiedLog;
import kafka.log.UnifiedLog$;
import kafka.server.BrokerTopicStats;
import scala.Option;

import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

/**
 * Has Kafka load partitions, in whatever state they are, and close them; see tests/interop/test_loading.py.
 *
 * <pre>
 * question, a line of fields between tabs
 *     folder of the partition | topic properties, a=b;c=d | closed cleanly, true or false | recovery point | log start offset
 *     | time it is, ms
 * verdict, a line
 *     log start offset, log end offset, recovery point, number of segments; or "error" and the exception
 * </pre>
 */
public class LoaderJudge {
    private static final long DAY_MS = 86_400_000L;

    public static void main(String[] arguments) throws Exception {
        try (BufferedReader in = new BufferedReader(new FileReader(arguments[0])); PrintWriter out = new PrintWriter(arguments[1])) {
            String line;
            while ((line = in.readLine()) != null)
                out.println(judge(line.split("\t")));
        }
    }

    private static String judge(String[] question) {
        Map<String, String> properties = new HashMap<>();
        for (String property : question[1].split(";")) {
            int at = property.indexOf('=');
            properties.put(property.substring(0, at), property.substring(at + 1));
        }
        Time time = new StoppedTime(Long.parseLong(question[5]));
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try {
            UnifiedLog log = UnifiedLog$.MODULE$.apply(new File(question[0]), new LogConfig(properties),
                Long.parseLong(question[4]), Long.parseLong(question[3]), scheduler, new BrokerTopicStats(false), time,
                5 * 60 * 1000, new ProducerStateManagerConfig((int) DAY_MS, false), 600_000, new LogDirFailureChannel(1),
                Boolean.parseBoolean(question[2]), Option.empty(), true, new ConcurrentHashMap<>(), false,
                LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
            String verdict = log.logStartOffset() + " " + log.logEndOffset() + " " + log.recoveryPoint() + " "
                + log.numberOfSegments();
            log.flush(true);
            log.close();
            return verdict;
        } catch (Exception error) {
            return "error " + error;
        } finally {
            try {
                scheduler.shutdown();
            } catch (InterruptedException error) {
                Thread.currentThread().interrupt();
            }
        }
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
