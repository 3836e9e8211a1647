import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/** An HDFS of one datanode, below the folder args[0]. Writes the namenode's port into the file args[1]. */
public final class HdfsProgram {
    public static void main(String[] args) throws Exception {
        Configuration configuration = new Configuration();
        configuration.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(args[0]).getAbsolutePath());
        MiniDFSCluster cluster = new MiniDFSCluster.Builder(configuration).numDataNodes(1).build();
        cluster.waitActive();
        Path fresh = Path.of(args[1] + ".new");
        Files.writeString(fresh, Integer.toString(cluster.getNameNodePort()));
        Files.move(fresh, Path.of(args[1]), StandardCopyOption.ATOMIC_MOVE);
        Thread.currentThread().join();
    }
}
