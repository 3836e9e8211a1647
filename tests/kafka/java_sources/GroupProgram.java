import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.function.Consumer;

import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/**
 * Clients of several Kafka releases in one process, each release with a class loader of its own; see tests/kafka/java_members.py.
 *
 * <pre>
 * arguments: the folder of the sources, a folder for what is compiled
 * on the standard input, fields between tabs
 *     open name jars class settings topics       jars is a folder; class GroupMember or TransactionMember; settings a=b;c=d;
 *                                                topics between commas
 *     do name word ...                           what the class knows, see there
 * on the standard output
 *     name word ...                              what it tells
 *     name ended                                 its thread is at its end
 *     name error class message
 * </pre>
 */
public class GroupProgram {
    private static final Map<String, ClassLoader> loaders = new HashMap<>();
    private static final Map<String, BlockingQueue<String[]>> open = new HashMap<>();
    private static PrintStream out;
    private static Path sources;
    private static Path classes;

    public static void main(String[] arguments) throws Exception {
        System.setProperty("org.slf4j.simpleLogger.defaultLogLevel", "warn");
        sources = Path.of(arguments[0]);
        classes = Path.of(arguments[1]);
        out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, "UTF-8");
        System.setOut(System.err);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null) {
            String[] fields = line.split("\t", -1);
            if (fields[0].equals("open"))
                open(fields[1], fields[2], fields[3], fields[4], fields[5].split(","));
            else
                open.get(fields[1]).add(Arrays.copyOfRange(fields, 2, fields.length));
        }
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    private static void open(String name, String jars, String className, String given, String[] topics) throws Exception {
        ClassLoader loader = loader(jars, className);
        Properties settings = new Properties();
        for (String setting : given.split(";")) {
            int at = setting.indexOf('=');
            settings.put(setting.substring(0, at), setting.substring(at + 1));
        }
        BlockingQueue<String[]> commands = new LinkedBlockingQueue<>();
        open.put(name, commands);
        Consumer<String> tell = text -> tell(name + "\t" + text);
        Thread thread = new Thread(() -> {
            Thread.currentThread().setContextClassLoader(loader);
            try {
                Runnable program = (Runnable) loader.loadClass(className)
                    .getConstructor(Properties.class, String[].class, BlockingQueue.class, Consumer.class)
                    .newInstance(settings, topics, commands, tell);
                program.run();
            } catch (Throwable thrown) {
                Throwable cause = thrown instanceof java.lang.reflect.InvocationTargetException ? thrown.getCause() : thrown;
                cause.printStackTrace();
                tell.accept("error\t" + cause.getClass().getSimpleName() + "\t" + String.valueOf(cause.getMessage()).replaceAll("\\s+", " "));
            }
            tell.accept("ended");
        }, name);
        thread.setDaemon(true);
        thread.start();
    }

    private static synchronized void tell(String line) {
        out.println(line);
    }

    /** Compiles a class against a release, unless that is done. */
    private static ClassLoader loader(String jars, String className) throws Exception {
        String key = jars + " " + className;
        if (!loaders.containsKey(key)) {
            List<URL> urls = new ArrayList<>();
            List<String> paths = new ArrayList<>();
            for (File jar : new File(jars).listFiles((folder, file) -> file.endsWith(".jar"))) {
                urls.add(jar.toURI().toURL());
                paths.add(jar.getPath());
            }
            Path target = Files.createDirectories(classes.resolve(new File(jars).getName()).resolve(className));
            JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
            int failed = compiler.run(null, System.err, System.err, "-nowarn", "-proc:none", "-d", target.toString(), "-cp",
                String.join(File.pathSeparator, paths), sources.resolve(className + ".java").toString());
            if (failed != 0)
                throw new IllegalStateException(className + " cannot be compiled against " + jars);
            urls.add(target.toUri().toURL());
            loaders.put(key, new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader()));
        }
        return loaders.get(key);
    }
}
