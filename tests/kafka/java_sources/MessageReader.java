import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Base64;
import java.util.List;

import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.Records;
import org.apache.kafka.common.utils.Time;

/**
 * Reads the batches of a file as Kafka's consumers do, and as its broker does for a client that knows older formats only;
 * see tests/interop/test_old_messages.py.
 *
 * <pre>
 * arguments   a file whose lines are: path of a log, newest format (0, 1, or 2 for a fetch without conversion)
 * prints      offset timestamp type key value     of each record; bytes in base64, null as -
 *             error class                         where reading ends with one
 *             end                                 after each line of the file
 * </pre>
 */
public class MessageReader {
    public static void main(String[] arguments) throws IOException {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Paths.get(arguments[0]))) {
            String[] fields = line.split("\t");
            try {
                read(Paths.get(fields[0]), Byte.parseByte(fields[1]), out);
            } catch (RuntimeException error) {
                out.append("error ").append(error.getClass().getSimpleName()).append('\n');
            }
            out.append("end\n");
        }
        System.out.print(out);
    }

    private static void read(Path path, byte magic, StringBuilder out) throws IOException {
        Records records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(path)));
        if (magic < 2)
            records = ((MemoryRecords) records).downConvert(magic, 0, Time.SYSTEM).records();
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch)
                out.append(record.offset()).append(' ').append(record.timestamp()).append(' ').append(batch.timestampType().id)
                    .append(' ').append(text(record.key())).append(' ').append(text(record.value())).append('\n');
        }
    }

    private static String text(ByteBuffer bytes) {
        if (bytes == null)
            return "-";
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}
