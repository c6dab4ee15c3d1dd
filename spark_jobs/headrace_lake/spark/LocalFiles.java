package headrace.lake;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's `LocalFs`, which writes the checkpoint and Delta's log: a new file never replaces another, and no step is a process.
 *
 * <p>Without its native library Hadoop 3.5 runs `chmod` for each file, and `readlink` before and after each renaming: sixty
 * processes for a batch. `readlink` gets a URI there and finds nothing, so that a link's status is that of its target, as here.
 *
 * <p>`engine` compiles it with Janino.
 */
public final class LocalFiles extends ChecksumFs {
    public LocalFiles(URI uri, Configuration configuration) throws IOException, URISyntaxException {
        super(new Unchecked(configuration));
    }

    /**
     * Hadoop looks whether the name is taken, and then renames, which replaces what came in between: a link fails.
     *
     * <p>The checksum is not kept: it is a second file, so it could be another writer's.
     */
    public void renameInternal(Path from, Path to, boolean overwrite) throws IOException {
        if (overwrite || getFileStatus(from).isDirectory()) {
            super.renameInternal(from, to, overwrite);
            return;
        }
        try {
            Files.createLink(Paths.get(to.toUri().getPath()), Paths.get(from.toUri().getPath()));
        } catch (java.nio.file.FileAlreadyExistsException taken) {
            throw new FileAlreadyExistsException(to.toString());
        }
        delete(from, false);
    }

    /** Hadoop's `RawLocalFs`, which has no public constructor. */
    public static final class Unchecked extends DelegateToFileSystem {
        Unchecked(Configuration configuration) throws IOException, URISyntaxException {
            super(FsConstants.LOCAL_FS_URI, new Direct(), configuration, "file", false);
        }

        public boolean isValidName(String name) {
            return true;
        }
    }

    /** The steps themselves. */
    public static final class Direct extends RawLocalFileSystem {
        public FileStatus getFileLinkStatus(Path path) throws IOException {
            return getFileStatus(path);
        }

        /** Leaves the permissions that the process's umask gave, as files of rows have them. */
        public void setPermission(Path path, FsPermission permission) {}
    }
}
