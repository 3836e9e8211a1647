import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.requests.ProduceResponse.RecordError;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.record.BrokerCompressionType;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Runs Kafka's own LogValidator, and its down-conversion, over the cases of a file; see tests/interop/test_validator.py.
 *
 * <pre>
 * case    byte 0, UTF topic properties (a line each), records, UTF origin, int leader epoch, long base offset, long now
 *         byte 1, byte magic, long first offset, records
 * verdict byte 0, records, long max timestamp, boolean size changed, long next offset   (of case 1: records only)
 *         byte 1, UTF class of the exception, UTF its message, int refused records, for each: int batch index
 * records are an int length and so many bytes
 * </pre>
 */
public class LogValidatorJudge {
    private static final TopicPartition PARTITION = new TopicPartition("judged", 0);
    private static final Map<String, LogConfig> CONFIGS = new HashMap<>();

    public static void main(String[] arguments) throws IOException {
        try (DataInputStream in = new DataInputStream(new BufferedInputStream(new FileInputStream(arguments[0])));
             DataOutputStream out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(arguments[1])))) {
            while (true) {
                byte kind;
                try {
                    kind = in.readByte();
                } catch (EOFException end) {
                    return;
                }
                if (kind == 0)
                    validate(in, out);
                else
                    downConvert(in, out);
            }
        }
    }

    private static void validate(DataInputStream in, DataOutputStream out) throws IOException {
        LogConfig config = CONFIGS.computeIfAbsent(in.readUTF(), LogValidatorJudge::config);
        MemoryRecords records = readRecords(in);
        AppendOrigin origin = AppendOrigin.valueOf(in.readUTF());
        int leaderEpoch = in.readInt();
        PrimitiveRef.LongRef offset = PrimitiveRef.ofLong(in.readLong());
        Time time = new FixedTime(in.readLong());
        LogValidator.ValidationResult result;
        try {
            // As UnifiedLog does: the codec is that of the last batch that has one.
            CompressionType source = CompressionType.NONE;
            for (RecordBatch batch : records.batches())
                if (batch.compressionType() != CompressionType.NONE)
                    source = batch.compressionType();
            Compression target = BrokerCompressionType.targetCompression(config.compression, source);
            LogValidator validator = new LogValidator(records, PARTITION, time, source, target, config.compact,
                config.recordVersion().value, config.messageTimestampType, config.messageTimestampBeforeMaxMs,
                config.messageTimestampAfterMaxMs, leaderEpoch, origin, MetadataVersion.latestProduction());
            result = validator.validateMessagesAndAssignOffsets(offset, new NoMetrics(), BufferSupplier.NO_CACHING);
        } catch (RecordValidationException refusal) {
            writeRefusal(out, refusal.invalidException(), refusal.recordErrors());
            return;
        } catch (Throwable refusal) {
            writeRefusal(out, refusal, List.of());
            return;
        }
        out.writeByte(0);
        writeRecords(out, result.validatedRecords);
        out.writeLong(result.maxTimestampMs);
        out.writeBoolean(result.messageSizeMaybeChanged);
        out.writeLong(offset.value);
    }

    private static void downConvert(DataInputStream in, DataOutputStream out) throws IOException {
        byte magic = in.readByte();
        long firstOffset = in.readLong();
        MemoryRecords records = readRecords(in);
        MemoryRecords converted;
        try {
            converted = records.downConvert(magic, firstOffset, Time.SYSTEM).records();
        } catch (Throwable refusal) {
            writeRefusal(out, refusal, List.of());
            return;
        }
        out.writeByte(0);
        writeRecords(out, converted);
    }

    private static LogConfig config(String text) {
        Map<String, String> properties = new HashMap<>();
        for (String line : text.split("\n")) {
            int equals = line.indexOf('=');
            if (equals > 0)
                properties.put(line.substring(0, equals), line.substring(equals + 1));
        }
        return new LogConfig(properties);
    }

    private static MemoryRecords readRecords(DataInputStream in) throws IOException {
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes));
    }

    private static void writeRecords(DataOutputStream out, MemoryRecords records) throws IOException {
        ByteBuffer buffer = records.buffer();
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        out.writeInt(bytes.length);
        out.write(bytes);
    }

    private static void writeRefusal(DataOutputStream out, Throwable why, List<RecordError> errors) throws IOException {
        out.writeByte(1);
        out.writeUTF(why.getClass().getSimpleName());
        out.writeUTF(String.valueOf(why.getMessage()));
        out.writeInt(errors.size());
        for (RecordError error : errors)
            out.writeInt(error.batchIndex);
    }

    private static class FixedTime implements Time {
        private final long now;

        FixedTime(long now) {
            this.now = now;
        }

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return 0;
        }

        @Override
        public void sleep(long ms) {
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    }

    private static class NoMetrics implements LogValidator.MetricsRecorder {
        @Override
        public void recordInvalidMagic() {
        }

        @Override
        public void recordInvalidOffset() {
        }

        @Override
        public void recordInvalidSequence() {
        }

        @Override
        public void recordInvalidChecksums() {
        }

        @Override
        public void recordNoKeyCompactedTopic() {
        }
    }
}
