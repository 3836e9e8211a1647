import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

import org.apache.kafka.common.utils.Exit;

/**
 * Command-line tools of the Kafka release on the class path, run one after the other in one process; see tests/kafka/java_tools.py.
 *
 * <pre>
 * on the standard input, a line a tool, fields between tabs:     class argument ...
 * on the standard output, for each:                              status bytes\n     then so many bytes: all that it printed
 * </pre>
 *
 * What they log goes to the standard error.
 */
public class ToolProgram {
    /** Leaves a tool that wants to end its process. */
    private static class Ended extends Error {
        Ended() {
            super("ended", null, false, false);
        }
    }

    private static Integer status;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), false, "UTF-8");
        System.setOut(System.err);
        Exit.Procedure ending = (given, message) -> {
            if (status == null)
                status = given;
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
            run(fields[0], Arrays.copyOfRange(fields, 1, fields.length), new PrintStream(printed, true, "UTF-8"));
            answers.print((status == null ? 0 : status) + " " + printed.size() + "\n");
            printed.writeTo(answers);
            answers.flush();
        }
    }

    private static void run(String tool, String[] arguments, PrintStream printed) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        System.setOut(printed);
        System.setErr(printed);
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (!(thrown.getCause() instanceof Ended)) {
                status = 1;
                thrown.getCause().printStackTrace(printed);
            }
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
    }
}
