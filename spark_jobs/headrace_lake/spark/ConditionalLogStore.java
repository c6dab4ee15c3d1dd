package headrace.lake;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.commons.io.IOUtils;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import software.amazon.awssdk.awscore.exception.AwsServiceException;

/**
 * Delta's log store for S3, with commits that S3 itself lets happen once: a conditional write (If-None-Match: *).
 *
 * <p>`log_store` compiles it with Janino, which knows no lambdas and does not infer type arguments.
 */
public class ConditionalLogStore extends S3SingleDriverLogStore {
    private static final int CONFLICT = 409;
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

    public ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    /** Writes a new file; throws `FileAlreadyExistsException` if there is one. What must be overwritten is Delta's matter. */
    public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration) throws IOException {
        if (overwrite.booleanValue()) {
            super.write(path, actions, overwrite, configuration);
            return;
        }
        ByteArrayOutputStream lines = new ByteArrayOutputStream();
        while (actions.hasNext()) {
            lines.write(((String) actions.next()).getBytes(StandardCharsets.UTF_8));
            lines.write('\n');
        }
        FileSystem files = path.getFileSystem(configuration);
        if (!create(files, path, lines.toByteArray())) {
            throw new FileAlreadyExistsException(path.toString());
        }
    }

    /**
     * Writes `content` to a new file. False: there is a file with other content.
     *
     * <p>If the answer to a request is lost, its repetition finds our own file: so what is there decides. A commit has an
     * identifier of its own; no other has the same content.
     *
     * <p>S3 answers 409 instead of 412 if another operation on the same name is under way (Amazon S3 API Reference, PutObject,
     * If-None-Match): if nothing can be read then, this fails.
     */
    public static boolean create(FileSystem files, Path path, byte[] content) throws IOException {
        try {
            FSDataOutputStreamBuilder builder = files.createFile(path);
            builder.overwrite(false);
            builder.must(CONDITIONAL, "true");
            FSDataOutputStream stream = (FSDataOutputStream) builder.build();
            stream.write(content);
            stream.close();
            return true;
        } catch (IOException failure) {
            byte[] found;
            try {
                found = read(files, path);
            } catch (IOException unreadable) {
                throw failure;
            }
            if (Arrays.equals(found, content)) {
                return true;
            }
            if (failure instanceof RemoteFileChangedException || conflicts(failure)) {
                return false;
            }
            throw failure;
        }
    }

    private static boolean conflicts(Throwable failure) {
        for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
            if (cause instanceof AwsServiceException && ((AwsServiceException) cause).statusCode() == CONFLICT) {
                return true;
            }
        }
        return false;
    }

    private static byte[] read(FileSystem files, Path path) throws IOException {
        FSDataInputStream stream = files.open(path);
        try {
            return IOUtils.toByteArray(stream);
        } finally {
            stream.close();
        }
    }
}
