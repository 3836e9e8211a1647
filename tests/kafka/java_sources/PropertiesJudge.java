import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;

/**
 * What Java and Kafka make of properties.
 *
 * "definitions": a line for each property of a broker: name, type, default, validator, with tabs between. Releases that do not show
 * their definitions tell the names only.
 * "parse": for each line of the standard input, a file in Base64, a line: the keys and values that java.util.Properties reads from it,
 * each in Base64, with commas between; or "refused".
 * "check": for each such line, "accepted" if a broker would start with these properties, or "refused", a tab and why.
 */
public class PropertiesJudge {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("definitions")) {
            definitions();
        } else if (arguments[0].equals("check")) {
            check();
        } else {
            parse();
        }
    }

    private static void definitions() throws Exception {
        Class<?> config = Class.forName("kafka.server.KafkaConfig");
        Method definition;
        try {
            definition = config.getMethod("configDef");
        } catch (NoSuchMethodException old) {
            Object names = config.getMethod("configNames").invoke(null);
            Object iterator = names.getClass().getMethod("iterator").invoke(names);
            Class<?> type = Class.forName("scala.collection.Iterator");
            while ((Boolean) type.getMethod("hasNext").invoke(iterator)) {
                System.out.println(type.getMethod("next").invoke(iterator));
            }
            return;
        }
        for (ConfigDef.ConfigKey key : ((ConfigDef) definition.invoke(null)).configKeys().values()) {
            System.out.println(key.name + "\t" + key.type + "\t" + (key.hasDefault() ? key.defaultValue : "") + "\t" + key.validator);
        }
    }

    private static void parse() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Properties properties = new Properties();
            try {
                properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(line)));
            } catch (IllegalArgumentException refused) {
                System.out.println("refused");
                continue;
            }
            StringBuilder told = new StringBuilder("read");
            for (Map.Entry<Object, Object> one : new TreeMap<>(properties).entrySet()) {
                told.append(',').append(encoded(one.getKey())).append(',').append(encoded(one.getValue()));
            }
            System.out.println(told);
        }
    }

    private static void check() throws Exception {
        Method made = Class.forName("kafka.server.KafkaConfig").getMethod("fromProps", Properties.class);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Properties properties = new Properties();
            properties.load(new ByteArrayInputStream(Base64.getDecoder().decode(line)));
            try {
                made.invoke(null, properties);
                System.out.println("accepted");
            } catch (InvocationTargetException refused) {
                System.out.println("refused\t" + String.valueOf(refused.getCause().getMessage()).replace('\n', ' '));
            }
        }
    }

    private static String encoded(Object text) {
        return Base64.getEncoder().encodeToString(text.toString().getBytes(StandardCharsets.UTF_16BE));
    }
}
