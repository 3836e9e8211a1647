import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Command-line tools of the Kafka release on the class path, run one after the other in one process; see tests/kafka/java_tools.py.
 *
 * <pre>
 * on the standard input, a line a tool, fields between tabs:     class argument ...
 * on the standard output, for each:                              status bytes\n     then so many bytes: all that it printed
 * </pre>
 *
 * What they log goes to the standard error, or with the argument "log" among what they print, as if each had its own process.
 * Scala keeps the System.out that it meets first, so there is only one.
 */
public class ToolProgram {
    /** Leaves a tool that wants to end its process. */
    private static class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    /** Writes to whatever is `target` at the moment. */
    private static class Switch extends OutputStream {
        volatile OutputStream target = System.err;

        @Override
        public void write(int one) throws IOException {
            target.write(one);
        }

        @Override
        public void write(byte[] bytes, int from, int size) throws IOException {
            target.write(bytes, from, size);
        }

        @Override
        public void flush() throws IOException {
            target.flush();
        }
    }

    private static final Switch OUTPUT = new Switch();
    private static Integer status;

    public static void main(String[] given) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        OutputStream log = System.err;
        System.setOut(System.err);
        if (given.length == 0)
            LoggerFactory.getLogger(ToolProgram.class); // Log4j keeps the System.out that it meets first.
        PrintStream both = new PrintStream(OUTPUT, true, "UTF-8");
        System.setOut(both);
        System.setErr(both);
        Exit.Procedure ending = (code, message) -> {
            if (status == null) {
                status = code;
                both.flush();
                OUTPUT.target = OutputStream.nullOutputStream(); // The process would have ended.
            }
            throw new Ended();
        };
        Exit.setExitProcedure(ending);
        Exit.setHaltProcedure(ending);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] fields = line.split("\t", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            status = null;
            OUTPUT.target = printed;
            run(fields[0], Arrays.copyOfRange(fields, 1, fields.length));
            both.flush();
            OUTPUT.target = log;
            answers.print((status == null ? 0 : status) + " " + printed.size() + "\n");
            printed.writeTo(answers);
            answers.flush();
        }
    }

    private static void run(String tool, String[] arguments) throws Exception {
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                status = 1;
                thrown.getCause().printStackTrace();
            }
        }
    }
}
