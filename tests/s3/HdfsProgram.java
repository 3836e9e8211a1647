import java.io.File;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * With two arguments: an HDFS of one datanode, below the folder args[0]. Writes the namenode's port into the file args[1].
 * With three: copies the file or folder args[1] to the path args[2] of the HDFS at args[0], in place of an older one.
 */
public final class HdfsProgram {
    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        if (args.length == 3) {
            // A file is closed once the namenode has heard of its block; the client asks again after so many milliseconds.
            configuration.set("dfs.client.block.write.locateFollowingBlock.initial.delay.ms", "10");
            FileSystem system = FileSystem.get(URI.create(args[0]), configuration);
            org.apache.hadoop.fs.Path target = new org.apache.hadoop.fs.Path(args[2]);
            system.delete(target, true);
            system.mkdirs(target.getParent());
            system.copyFromLocalFile(new org.apache.hadoop.fs.Path(args[1]), target);
            return;
        }
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(args[0]).getAbsolutePath());
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        cluster.waitActive();
        Path fresh = Path.of(args[1] + ".new");
        Files.writeString(fresh, Integer.toString(cluster.getNameNodePort()));
        Files.move(fresh, Path.of(args[1]), StandardCopyOption.ATOMIC_MOVE);
        Thread.currentThread().join();
    }
}
