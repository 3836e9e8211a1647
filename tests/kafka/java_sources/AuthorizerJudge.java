import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/**
 * What Kafka's StandardAuthorizer decides. Lines of the standard input, with tabs between:
 *
 * "new", super users, allow.everyone.if.no.acl.found: an authorizer without entries.
 * "acl", resource type, name, pattern type, principal, host, operation, permission: one more entry; numbers as in the protocol.
 * "may", type and name of the principal, host, operation, resource type, name: "true" or "false" is printed.
 * "any", type and name of the principal, host, operation, resource type: the same, for any resource of the type.
 */
public class AuthorizerJudge {
    private static StandardAuthorizer authorizer;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] part = line.split("\t", -1);
            switch (part[0]) {
                case "new":
                    Map<String, Object> config = new HashMap<>();
                    config.put("super.users", part[1]);
                    config.put("allow.everyone.if.no.acl.found", part[2]);
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(config);
                    authorizer.completeInitialLoad();
                    break;
                case "acl":
                    authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                        ResourceType.fromCode(code(part[1])), part[2], PatternType.fromCode(code(part[3])), part[4], part[5],
                        AclOperation.fromCode(code(part[6])), AclPermissionType.fromCode(code(part[7]))));
                    break;
                case "may":
                    ResourcePattern pattern = new ResourcePattern(ResourceType.fromCode(code(part[5])), part[6], PatternType.LITERAL);
                    Action action = new Action(AclOperation.fromCode(code(part[4])), pattern, 1, false, false);
                    print(authorizer.authorize(new Context(part), Collections.singletonList(action)).get(0).toString());
                    break;
                default:
                    print(authorizer.authorizeByResourceType(
                        new Context(part), AclOperation.fromCode(code(part[4])), ResourceType.fromCode(code(part[5]))).toString());
            }
        }
    }

    private static byte code(String text) {
        return Byte.parseByte(text);
    }

    private static void print(String result) {
        System.out.println(result.equals("ALLOWED"));
    }

    private static class Context implements AuthorizableRequestContext {
        private final KafkaPrincipal principal;
        private final InetAddress address;

        Context(String[] part) throws Exception {
            principal = new KafkaPrincipal(part[1], part[2]);
            address = InetAddress.getByName(part[3]);
        }

        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public KafkaPrincipal principal() {
            return principal;
        }

        @Override
        public InetAddress clientAddress() {
            return address;
        }

        @Override
        public int requestType() {
            return 0;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
