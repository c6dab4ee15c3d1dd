package headrace.lake;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;

/**
 * Delta's log store for S3, with commits that S3 itself lets happen once: a conditional write (If-None-Match: *).
 *
 * <p>`log_store` compiles it with Janino, which knows no lambdas and does not infer type arguments.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    /**
     * Writes a new file; throws `FileAlreadyExistsException` if there is one. What must be overwritten is Delta's matter.
     *
     * <p>If the answer to a request is lost, its repetition finds our own file: Delta then takes our commit for another's, and
     * `fence` finds it in the log.
     */
    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        FSDataOutputStreamBuilder builder = path.getFileSystem(configuration).createFile(path);
        builder.overwrite(false);
        builder.must("fs.option.create.conditional.overwrite", "true");
        FSDataOutputStream stream = (FSDataOutputStream) builder.build();
        while (actions.hasNext()) {
            stream.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
        }
        try {
            stream.close();
        } catch (RemoteFileChangedException taken) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }
}
