import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.*;
import org.apache.kafka.common.Uuid;

/**
 * Kafka's server-side assignors. A line of input is a case:
 * assignor;size,size;member,instance,topics,topic:partition topic:partition;member... Topics are numbers, joined by +.
 * A line of output is its assignment: member=topic:partition topic:partition;member=...
 */
public class AssignorJudge {
    static final String API = "org.apache.kafka.coordinator.group.api.assignor.";

    static Object made(String name, Map<String, InvocationHandler> answers) throws Exception {
        Class<?> kind = Class.forName(API + name);
        return Proxy.newProxyInstance(AssignorJudge.class.getClassLoader(), new Class<?>[] {kind}, (proxy, method, arguments) -> {
            InvocationHandler answer = answers.get(method.getName());
            if (answer == null) throw new IllegalStateException("asked for " + method);
            return answer.invoke(proxy, method, arguments);
        });
    }

    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) System.out.println(assigned(line));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static String assigned(String line) throws Exception {
        String[] parts = line.split(";");
        int[] sizes = Arrays.stream(parts[1].split(",")).mapToInt(Integer::parseInt).toArray();
        Map<Uuid, Integer> numbers = new HashMap<>();
        Uuid[] ids = new Uuid[sizes.length];
        for (int i = 0; i < sizes.length; i++) numbers.put(ids[i] = new Uuid(7, i + 1), i);
        Map<String, Object> subscriptions = new HashMap<>(), assignments = new HashMap<>();
        Set<String> taken = new HashSet<>(), wanted = new HashSet<>();
        for (int i = 2; i < parts.length; i++) {
            String[] member = parts[i].split(",", -1);
            wanted.add(member[2]);
            Set<Uuid> topics = new HashSet<>();
            for (String topic : member[2].split("\\+")) topics.add(ids[Integer.parseInt(topic)]);
            Map<Uuid, Set<Integer>> had = new HashMap<>();
            for (String one : member[3].split(" ")) {
                if (one.isEmpty()) continue;
                String[] both = one.split(":");
                taken.add(one);
                had.computeIfAbsent(ids[Integer.parseInt(both[0])], id -> new HashSet<>()).add(Integer.parseInt(both[1]));
            }
            Optional<String> instance = member[1].isEmpty() ? Optional.empty() : Optional.of(member[1]);
            subscriptions.put(member[0], made("MemberSubscription", Map.of(
                "rackId", (p, m, a) -> Optional.empty(), "instanceId", (p, m, a) -> instance, "subscribedTopicIds", (p, m, a) -> topics)));
            assignments.put(member[0], made("MemberAssignment", Map.of("partitions", (p, m, a) -> Collections.unmodifiableMap(had))));
        }
        Class type = Class.forName(API + "SubscriptionType");
        Object kind = Enum.valueOf(type, wanted.size() == 1 ? "HOMOGENEOUS" : "HETEROGENEOUS");
        Object group = made("GroupSpec", Map.of(
            "memberIds", (p, m, a) -> subscriptions.keySet(),
            "subscriptionType", (p, m, a) -> kind,
            "isPartitionAssigned", (p, m, a) -> taken.contains(numbers.get(a[0]) + ":" + a[1]),
            "isPartitionAssignable", (p, m, a) -> true,
            "memberSubscription", (p, m, a) -> subscriptions.get(a[0]),
            "memberAssignment", (p, m, a) -> assignments.get(a[0])));
        Object topics = made("SubscribedTopicDescriber", Map.of(
            "numPartitions", (p, m, a) -> sizes[numbers.get(a[0])],
            "assignablePartitions", (p, m, a) -> {
                Set<Integer> all = new HashSet<>();
                for (int i = 0; i < sizes[numbers.get(a[0])]; i++) all.add(i);
                return all;
            },
            "racksForPartition", (p, m, a) -> Set.of()));
        Object assignor = Class.forName("org.apache.kafka.coordinator.group.assignor." + parts[0]).getConstructor().newInstance();
        Method assign = assignor.getClass().getMethod("assign", Class.forName(API + "GroupSpec"), Class.forName(API + "SubscribedTopicDescriber"));
        Object found = assign.invoke(assignor, group, topics);
        Map<String, Object> members = (Map<String, Object>) found.getClass().getMethod("members").invoke(found);
        Method partitions = Class.forName(API + "MemberAssignment").getMethod("partitions");
        List<String> told = new ArrayList<>();
        for (Map.Entry<String, Object> one : members.entrySet()) {
            List<String> held = new ArrayList<>();
            Map<Uuid, Set<Integer>> all = (Map<Uuid, Set<Integer>>) partitions.invoke(one.getValue());
            all.forEach((id, some) -> some.forEach(partition -> held.add(numbers.get(id) + ":" + partition)));
            told.add(one.getKey() + "=" + String.join(" ", held));
        }
        return String.join(";", told);
    }
}
