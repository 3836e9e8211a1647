// What makes Spark read a Python source's Arrow batches as columns. See columnar.py and docs/decisions/0015. Janino compiles it: no
// lambdas, and the casts that its view of Scala's generics needs.
//
// Spark's own reader of a Python source turns each Arrow batch into rows by an UnsafeProjection, and the scan's plan turns those
// rows into rows once more. These classes hand the batches on as they came; Spark's ColumnarToRow then makes rows once, of the
// columns that the query uses. Which rows there are, and all that happens in Python, stays what it was.
//
//   ColumnarSessions  what Spark finds in the jar when a session starts: gives it ColumnarBatches and ColumnarStreams
//   ColumnarBatches   rule for planned queries: gives a batch scan of the source a ColumnarScan
//   ColumnarReads     the same as an optimizer rule, for a session that has already started
//   ColumnarStreams   planner strategy: the same for a micro-batch of a stream
//   ColumnarScan      the scan that it wraps, and says "columns"
//   ColumnarReaders   makes the readers on the executors
//   ColumnarReader    one task's Arrow batches, from its Python worker

package tidelog.spark;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.ContinuousStream;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.FilterExec;
import org.apache.spark.sql.execution.ProjectExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.datasources.v2.BatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec;
import org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.util.AccumulatorV2;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;

public final class ColumnarSessions extends scala.runtime.AbstractFunction1 implements SparkSessionExtensionsProvider {
  static final String SPARK = "4.3.0";

  public Object apply(Object extensions) {
    // The classes were compiled for this version: with another one the session reads rows.
    if (SPARK.equals(org.apache.spark.package$.MODULE$.SPARK_VERSION())) {
      ((SparkSessionExtensions) extensions).injectColumnar(new MakesColumnarBatches());
      ((SparkSessionExtensions) extensions).injectPlannerStrategy(new MakesColumnarStreams());
    }
    return scala.runtime.BoxedUnit.UNIT;
  }
}

public final class MakesColumnarBatches extends scala.runtime.AbstractFunction1 {
  public Object apply(Object session) {
    try {
      // The source, in its Python process, warns of rows unless this file exists (once.py).
      new java.io.File(blocks().diskBlockManager().localDirs()[0], "tidelog-said-rows").createNewFile();
    } catch (Throwable error) {
      // Then it warns without need.
    }
    return new ColumnarBatches();
  }

  // Janino looks at all methods of a class that it knows, and those of SparkEnv name a class that Spark does not bring.
  private static BlockManager blocks() throws Throwable {
    Class env = Class.forName("org.apache.spark.SparkEnv");
    MethodHandles.Lookup methods = MethodHandles.publicLookup();
    Object current = methods.findStatic(env, "get", MethodType.methodType(env)).invokeWithArguments(new Object[0]);
    MethodHandle blocks = methods.findVirtual(env, "blockManager", MethodType.methodType(BlockManager.class));
    return (BlockManager) blocks.invokeWithArguments(new Object[] {current});
  }
}

public final class MakesColumnarStreams extends scala.runtime.AbstractFunction1 {
  public Object apply(Object session) {
    return new ColumnarStreams();
  }
}

public final class ColumnarBatches extends ColumnarRule {
  public Rule preColumnarTransitions() {
    return new ColumnarPlans();
  }
}

public final class ColumnarPlans extends Rule {
  public TreeNode apply(TreeNode plan) {
    return ColumnarReads.isOn() ? ((SparkPlan) plan).transformDown(new PlanWithColumns()) : plan;
  }
}

public final class PlanWithColumns extends scala.runtime.AbstractPartialFunction {
  public boolean isDefinedAt(Object node) {
    return node instanceof BatchScanExec && ((BatchScanExec) node).scan() instanceof PythonScan
        && ColumnarReads.SOURCE.equals(((BatchScanExec) node).table().name());
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    if (!isDefinedAt(node)) {
      return otherwise.apply(node);
    }
    BatchScanExec scan = (BatchScanExec) node;
    return scan.copy(scan.output(), new ColumnarScan(scan.scan()), scan.runtimeFilters(), scan.ordering(), scan.table(),
        scan.keyGroupedPartitioning());
  }
}

public final class ColumnarReads extends Rule {
  static final String SOURCE = "tidelog";

  static boolean isOn() {
    return !"false".equalsIgnoreCase(SQLConf.get().getConfString("spark.tidelog.columnarReads", "true"));
  }

  public TreeNode apply(TreeNode plan) {
    return isOn() ? ((LogicalPlan) plan).transformDown(new WithColumns()) : plan;
  }
}

public final class WithColumns extends scala.runtime.AbstractPartialFunction {
  public boolean isDefinedAt(Object node) {
    return node instanceof DataSourceV2ScanRelation
        && ((DataSourceV2ScanRelation) node).scan() instanceof PythonScan
        && ColumnarReads.SOURCE.equals(((DataSourceV2ScanRelation) node).relation().table().name());
  }

  public Object applyOrElse(Object node, Function1 otherwise) {
    if (!isDefinedAt(node)) {
      return otherwise.apply(node);
    }
    DataSourceV2ScanRelation relation = (DataSourceV2ScanRelation) node;
    return relation.copy(relation.relation(), new ColumnarScan(relation.scan()), relation.output(),
        relation.keyGroupedPartitioning(), relation.ordering(), relation.pushedFilters(), relation.mergeableScan());
  }
}

public final class ColumnarStreams extends SparkStrategy {
  public Seq apply(LogicalPlan plan) {
    if (!ColumnarReads.isOn()) {
      return none();
    }
    if (isOurs(plan)) {
      StreamingDataSourceV2ScanRelation relation = (StreamingDataSourceV2ScanRelation) plan;
      return only(new ColumnarMicroBatch(relation.output(), new ColumnarScan(relation.scan()),
          (MicroBatchStream) relation.stream(), (Offset) relation.startOffset().get(), (Offset) relation.endOffset().get(),
          Option.empty(), Option.empty()));
    }
    // Spark plans a scan together with the projections and filters above it: these must come here first, one by one.
    if (plan instanceof Project && leadsToOurs(((Project) plan).child())) {
      return only(new ProjectExec(((Project) plan).projectList(), planLater(((Project) plan).child())));
    }
    if (plan instanceof Filter && leadsToOurs(((Filter) plan).child())) {
      return only(new FilterExec(((Filter) plan).condition(), planLater(((Filter) plan).child())));
    }
    return none();
  }

  private static boolean leadsToOurs(LogicalPlan plan) {
    LogicalPlan below = plan;
    while (below instanceof Project || below instanceof Filter) {
      below = below instanceof Project ? ((Project) below).child() : ((Filter) below).child();
    }
    return isOurs(below);
  }

  private static boolean isOurs(LogicalPlan plan) {
    if (!(plan instanceof StreamingDataSourceV2ScanRelation)) {
      return false;
    }
    StreamingDataSourceV2ScanRelation relation = (StreamingDataSourceV2ScanRelation) plan;
    return relation.scan() instanceof PythonScan && ColumnarReads.SOURCE.equals(relation.relation().table().name())
        && relation.stream() instanceof MicroBatchStream && relation.startOffset().isDefined()
        && relation.endOffset().isDefined();
  }

  private static Seq none() {
    return scala.collection.immutable.Nil$.MODULE$;
  }

  private static Seq only(Object plan) {
    return (Seq) none().appended(plan);
  }
}

// The stream itself stays Spark's: progress counts rows by it.
public final class ColumnarMicroBatch extends MicroBatchScanExec {
  private transient PartitionReaderFactory columns;

  public ColumnarMicroBatch(Seq output, Scan scan, MicroBatchStream stream, Offset start, Offset end, Option keys, Option ordering) {
    super(output, scan, stream, start, end, keys, ordering);
  }

  public PartitionReaderFactory readerFactory() {
    if (columns == null) {
      columns = new ColumnarReaders((PythonStreamingPartitionReaderFactory) super.readerFactory());
    }
    return columns;
  }
}

public final class ColumnarScan implements Scan {
  private final Scan rows;

  ColumnarScan(Scan rows) {
    this.rows = rows;
  }

  public StructType readSchema() {
    return rows.readSchema();
  }

  public String description() {
    return rows.description();
  }

  public Batch toBatch() {
    return new ColumnarTasks(rows.toBatch());
  }

  public MicroBatchStream toMicroBatchStream(String checkpoint) {
    return rows.toMicroBatchStream(checkpoint);
  }

  public ContinuousStream toContinuousStream(String checkpoint) {
    return rows.toContinuousStream(checkpoint);
  }

  public CustomMetric[] supportedCustomMetrics() {
    return rows.supportedCustomMetrics();
  }

  public CustomTaskMetric[] reportDriverMetrics() {
    return rows.reportDriverMetrics();
  }

  public Scan.ColumnarSupportMode columnarSupportMode() {
    return Scan.ColumnarSupportMode.SUPPORTED;
  }

  public boolean equals(Object other) {
    return other instanceof ColumnarScan && rows.equals(((ColumnarScan) other).rows);
  }

  public int hashCode() {
    return rows.hashCode();
  }
}

public final class ColumnarTasks implements Batch {
  private final Batch rows;

  ColumnarTasks(Batch rows) {
    this.rows = rows;
  }

  public InputPartition[] planInputPartitions() {
    return rows.planInputPartitions();
  }

  public PartitionReaderFactory createReaderFactory() {
    return new ColumnarReaders((PythonPartitionReaderFactory) rows.createReaderFactory());
  }

  public boolean equals(Object other) {
    return other instanceof ColumnarTasks && rows.equals(((ColumnarTasks) other).rows);
  }

  public int hashCode() {
    return rows.hashCode();
  }
}

public final class ColumnarReaders implements PartitionReaderFactory {
  private final PartitionReaderFactory rows;
  private final UserDefinedPythonDataSource source;
  private final byte[] function;
  private final StructType schema;
  private final Option job;
  private final Option session;

  ColumnarReaders(PythonPartitionReaderFactory of) {
    rows = of;
    source = of.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
    function = of.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc;
    schema = of.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$outputSchema;
    job = of.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID;
    session = of.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID;
  }

  ColumnarReaders(PythonStreamingPartitionReaderFactory of) {
    rows = of;
    source = of.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$source;
    function = of.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$pickledReadFunc;
    schema = of.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$outputSchema;
    job = of.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$jobArtifactUUID;
    session = of.org$apache$spark$sql$execution$datasources$v2$python$PythonStreamingPartitionReaderFactory$$sessionUUID;
  }

  public PartitionReader createReader(InputPartition partition) {
    return rows.createReader(partition);
  }

  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  public PartitionReader createColumnarReader(InputPartition partition) {
    byte[] pickled = partition instanceof PythonInputPartition
        ? ((PythonInputPartition) partition).pickedPartition()
        : ((PythonStreamingInputPartition) partition).pickedPartition();
    Map metrics = PythonCustomMetric.pythonMetrics();
    MapInBatchEvaluatorFactory evaluators = source.createMapInBatchEvaluatorFactory(
        function, "read_from_data_source", UserDefinedPythonDataSource.readInputSchema(), schema, metrics, job, session);
    // As MapInBatchEvaluator does it; its rows of the answer are what is left out.
    ArrowPythonRunner runner =
        new org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory$MapInBatchEvaluator$$anon$1(
            (org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory$MapInBatchEvaluator) evaluators.createEvaluator(),
            new int[][] {new int[] {0}});
    Object row = new GenericInternalRow(new Object[] {new GenericInternalRow(new Object[] {pickled})});
    Iterator input = scala.collection.Iterator$.MODULE$.single(scala.collection.Iterator$.MODULE$.single(row));
    TaskContext context = TaskContext.get();
    return new ColumnarReader(runner.compute(input, context.partitionId(), context), source, metrics, schema);
  }
}

public final class ColumnarReader implements PartitionReader {
  private final Iterator batches;
  private final UserDefinedPythonDataSource source;
  private final Map metrics;
  private final StructType schema;

  ColumnarReader(Iterator batches, UserDefinedPythonDataSource source, Map metrics, StructType schema) {
    this.batches = batches;
    this.source = source;
    this.metrics = metrics;
    this.schema = schema;
  }

  public boolean next() {
    return batches.hasNext();
  }

  public Object get() {
    // The worker sends one column, a struct of them all.
    ColumnarBatch batch = (ColumnarBatch) batches.next();
    ArrowColumnVector struct = (ArrowColumnVector) batch.column(0);
    ColumnVector[] columns = new ColumnVector[schema.length()];
    if (((StructType) struct.dataType()).length() != columns.length) {
      throw new IllegalStateException("the source sent " + struct.dataType().catalogString() + " for " + schema.catalogString());
    }
    for (int number = 0; number < columns.length; number++) {
      columns[number] = FlatColumn.of((ArrowColumnVector) struct.getChild(number), batch.numRows());
      if (!columns[number].dataType().sameType(schema.apply(number).dataType())) {
        throw new IllegalStateException("the source sent " + struct.dataType().catalogString() + " for " + schema.catalogString());
      }
    }
    return new ColumnarBatch(columns, batch.numRows());
  }

  public CustomTaskMetric[] currentMetricsValues() {
    Map values = scala.collection.immutable.Map$.MODULE$.empty();
    Iterator entries = metrics.iterator();
    while (entries.hasNext()) {
      scala.Tuple2 entry = (scala.Tuple2) entries.next();
      values = (Map) values.updated(entry._1(), ((AccumulatorV2) entry._2()).value());
    }
    return source.createPythonTaskMetrics(values);
  }

  public void close() {}
}
