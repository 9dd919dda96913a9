import com.hivemq.extension.sdk.api.ExtensionMain;
import com.hivemq.extension.sdk.api.auth.SimpleAuthenticator;
import com.hivemq.extension.sdk.api.packets.connect.ConnackReasonCode;
import com.hivemq.extension.sdk.api.parameter.ExtensionStartInput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStartOutput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStopInput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStopOutput;
import com.hivemq.extension.sdk.api.services.Services;
import java.io.IOException;
import java.io.Reader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;

/** Extension of HiveMQ for tests: lets the users of users.properties in, with their passwords. */
public final class PasswordLogin implements ExtensionMain {
    @Override
    public void extensionStart(ExtensionStartInput input, ExtensionStartOutput output) {
        Properties users = new Properties();
        Path folder = input.getExtensionInformation().getExtensionHomeFolder().toPath();
        try (Reader reader = Files.newBufferedReader(folder.resolve("users.properties"))) {
            users.load(reader);
        } catch (IOException error) {
            output.preventExtensionStartup(error.toString());
            return;
        }
        SimpleAuthenticator compare = (login, answer) -> {
            String wanted = users.getProperty(login.getConnectPacket().getUserName().orElse(""));
            ByteBuffer given = login.getConnectPacket().getPassword().orElse(null);
            if (wanted != null && given != null && StandardCharsets.UTF_8.decode(given).toString().equals(wanted)) {
                answer.authenticateSuccessfully();
            } else {
                answer.failAuthentication(ConnackReasonCode.BAD_USER_NAME_OR_PASSWORD, "wrong user or password");
            }
        };
        Services.securityRegistry().setAuthenticatorProvider(provided -> compare);
    }

    @Override
    public void extensionStop(ExtensionStopInput input, ExtensionStopOutput output) {
    }
}
