import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.MessageFormatter;

/**
 * What a formatter of the console consumer prints for records.
 *
 * <pre>
 * arguments                                     the class of the formatter
 * on the standard input, a line a record:       key, tab, value, both in base64; "-" for null
 * on the standard output, a line for each:      what it prints, without line ends; nothing for what it cannot read
 * </pre>
 */
public class FormatterProgram {
    public static void main(String[] arguments) throws Exception {
        MessageFormatter formatter = (MessageFormatter) Class.forName(arguments[0]).getConstructor().newInstance();
        PrintStream answers = new PrintStream(System.out, false, "UTF-8");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] fields = line.split("\t");
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            try {
                formatter.writeTo(new ConsumerRecord<>("", 0, 0, bytes(fields[0]), bytes(fields[1])), new PrintStream(printed));
            } catch (RuntimeException unreadable) {
                printed.reset();
            }
            answers.println(printed.toString("UTF-8").replace("\n", ""));
        }
        answers.flush();
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }
}
