// Compiled in the JVM of a writer by lakehouse/conditional_puts.py: Delta 4.4 has no log store whose commits are conditional on S3.
package io.delta.storage;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.EnumSet;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.hadoop.fs.s3a.S3A;
import org.apache.hadoop.util.Progressable;

/** Log of Delta tables in an object store: the store itself rejects the file of a commit if the version exists. */
public class S3ConditionalLogStore extends HadoopFileSystemLogStore {

    public S3ConditionalLogStore(Configuration configuration) {
        super(configuration);
    }

    /** Open an object whose put, at its close, carries `If-None-Match: *`. S3A's `create` looks first and puts without it. */
    public static FSDataOutputStream create(FileSystem files, Path path) throws IOException {
        FSDataOutputStreamBuilder builder = files.createFile(path);
        builder.create();
        builder.overwrite(false);
        builder.recursive();
        builder.must("fs.option.create.conditional.overwrite", true);
        return (FSDataOutputStream) builder.build();
    }

    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration configuration) throws IOException {
        // All of it before the object is opened: whatever fails here leaves no half a commit.
        StringBuilder lines = new StringBuilder();
        while (actions.hasNext()) {
            lines.append((String) actions.next()).append('\n');
        }
        byte[] content = lines.toString().getBytes(StandardCharsets.UTF_8);
        FileSystem files = path.getFileSystem(configuration);
        FSDataOutputStream out = overwrite.booleanValue() ? files.create(path, true) : create(files, path);
        out.write(content);
        try {
            out.close();
        } catch (RemoteFileChangedException error) {
            FileAlreadyExistsException conflict = new FileAlreadyExistsException(path.toString());
            conflict.initCause(error);
            throw conflict;
        }
    }

    public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
        return Boolean.FALSE;
    }
}

/** The file system of Spark's checkpoint, with the same puts: the plan of a batch is never replaced by that of another stream. */
class S3ConditionalFiles extends S3A {

    public S3ConditionalFiles(URI uri, Configuration configuration) throws IOException, URISyntaxException {
        super(uri, configuration);
    }

    public FSDataOutputStream createInternal(
            Path path, EnumSet<CreateFlag> flags, FsPermission permission, int buffer, short copies, long block,
            Progressable progress, Options.ChecksumOpt checksum, boolean parents) throws IOException {
        if (flags.contains(CreateFlag.OVERWRITE)) {
            return super.createInternal(path, flags, permission, buffer, copies, block, progress, checksum, parents);
        }
        return S3ConditionalLogStore.create(this.fsImpl, path);
    }
}
