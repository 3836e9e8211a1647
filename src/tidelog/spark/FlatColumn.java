// A column of an Arrow batch: numbers, texts or bytes, read where they lie in memory. Part of ColumnarReads.java, compiled before it.
//
// Spark's own view of an Arrow vector calls three objects at each value to learn whether it is null, of a class for each type: that was
// six tenths of the JVM's time in a full read. This is one class for all types, so that a query's loop calls nothing. Lengths are
// compared with the buffers once a batch, where Arrow compares each value.

package tidelog.spark;

import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroTZVector;
import org.apache.arrow.vector.VarBinaryVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

public final class FlatColumn extends ColumnVector {
  private final ArrowColumnVector arrow;
  private final boolean hasNull;
  private final long validity;
  private final long offsets;
  private final long data;

  private FlatColumn(ArrowColumnVector arrow, FieldVector vector, int rows, int width) {
    super(arrow.dataType());
    this.arrow = arrow;
    hasNull = vector.getNullCount() > 0;
    validity = hasNull ? memory(vector.getValidityBuffer(), (rows + 7) / 8) : 0;
    offsets = width == 0 ? memory(vector.getOffsetBuffer(), 4L * (rows + 1)) : 0;
    data = memory(vector.getDataBuffer(), width == 0 ? Platform.getInt(null, offsets + 4L * rows) : (long) width * rows);
  }

  // Spark's own view remains for other types.
  static ColumnVector of(ArrowColumnVector arrow, int rows) {
    Object vector = arrow.getValueVector();
    int width = vector instanceof VarBinaryVector || vector instanceof VarCharVector ? 0
        : vector instanceof IntVector ? 4
        : vector instanceof BigIntVector || vector instanceof TimeStampMicroTZVector ? 8 : -1;
    return width < 0 || rows == 0 ? arrow : new FlatColumn(arrow, (FieldVector) vector, rows, width);
  }

  private static long memory(ArrowBuf buffer, long bytes) {
    if (bytes < 0 || buffer.capacity() < bytes) {
      throw new IllegalStateException("the source sent " + buffer.capacity() + " bytes where " + bytes + " belong");
    }
    return buffer.memoryAddress();
  }

  public boolean isNullAt(int row) {
    return hasNull && (Platform.getByte(null, validity + (row >> 3)) & (1 << (row & 7))) == 0;
  }

  public boolean hasNull() {
    return hasNull;
  }

  public int numNulls() {
    return arrow.numNulls();
  }

  public int getInt(int row) {
    return Platform.getInt(null, data + 4L * row);
  }

  public long getLong(int row) {
    return Platform.getLong(null, data + 8L * row);
  }

  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    return UTF8String.fromAddress(null, data + start, Platform.getInt(null, offsets + 4L * row + 4) - start);
  }

  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    byte[] bytes = new byte[Platform.getInt(null, offsets + 4L * row + 4) - start];
    Platform.copyMemory(null, data + start, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
    return bytes;
  }

  public void close() {
    arrow.close();
  }

  public boolean getBoolean(int row) {
    return arrow.getBoolean(row);
  }

  public byte getByte(int row) {
    return arrow.getByte(row);
  }

  public short getShort(int row) {
    return arrow.getShort(row);
  }

  public float getFloat(int row) {
    return arrow.getFloat(row);
  }

  public double getDouble(int row) {
    return arrow.getDouble(row);
  }

  public ColumnarArray getArray(int row) {
    return arrow.getArray(row);
  }

  public ColumnarMap getMap(int row) {
    return arrow.getMap(row);
  }

  public Decimal getDecimal(int row, int precision, int scale) {
    return arrow.getDecimal(row, precision, scale);
  }

  public ColumnVector getChild(int number) {
    return arrow.getChild(number);
  }
}
