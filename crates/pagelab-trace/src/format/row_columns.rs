//! Tables whose rows are structs, written and read column by column with the parquet crate's own writers and readers:
//! all tables except accesses.

use bytes::Bytes;
use parquet::{
    column::reader::get_typed_column_reader,
    data_type::DataType,
    errors::Result as ParquetResult,
    file::{
        reader::{FileReader, SerializedFileReader},
        writer::SerializedRowGroupWriter,
    },
};

use crate::library_panics::as_errors;

type Group<'a> = SerializedRowGroupWriter<'a, Vec<u8>>;

/// Writes the next column, whose values are never null.
pub(super) fn required<T: DataType, R>(
    group: &mut Group<'_>,
    rows: &[R],
    value: impl Fn(&R) -> T::T,
) -> ParquetResult<()> {
    let values: Vec<T::T> = rows.iter().map(value).collect();
    put::<T>(group, &values, None)
}

/// Writes the next column, with null where there is no value.
pub(super) fn optional<T: DataType, R>(
    group: &mut Group<'_>,
    rows: &[R],
    value: impl Fn(&R) -> Option<T::T>,
) -> ParquetResult<()> {
    let cells: Vec<Option<T::T>> = rows.iter().map(value).collect();
    let levels: Vec<i16> = cells.iter().map(|cell| i16::from(cell.is_some())).collect();
    let values: Vec<T::T> = cells.into_iter().flatten().collect();
    put::<T>(group, &values, Some(&levels))
}

fn put<T: DataType>(group: &mut Group<'_>, values: &[T::T], levels: Option<&[i16]>) -> ParquetResult<()> {
    let mut column = group.next_column()?.expect("as many columns as the schema has");
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

/// For columns without invalid values.
pub(super) fn set<T>(cell: &mut T, value: T) -> Result<(), String> {
    *cell = value;
    Ok(())
}

/// Reads a part's columns into rows.
pub(super) struct RowsReader<'a, R> {
    file: SerializedFileReader<Bytes>,
    column: usize,
    rows: &'a mut [R],
}

impl<'a, R> RowsReader<'a, R> {
    /// `rows` has one element per row of the part.
    pub(super) fn new(content: Bytes, rows: &'a mut [R]) -> Result<Self, String> {
        let file = as_errors(|| SerializedFileReader::new(content))?;
        Ok(Self { file, column: 0, rows })
    }

    /// Calls `take` with the row and the value of each non-null cell of the next column.
    pub(super) fn column<T: DataType>(
        &mut self,
        mut take: impl FnMut(&mut R, &T::T) -> Result<(), String>,
    ) -> Result<(), String> {
        let descriptor = self.file.metadata().file_metadata().schema_descr().column(self.column);
        let in_column = |what: String| format!("column {}: {what}", descriptor.name());
        let optional = descriptor.max_def_level() > 0;
        let (values, levels) = as_errors(|| self.cells::<T>(optional)).map_err(in_column)?;
        let mut values = values.iter();
        for (index, row) in self.rows.iter_mut().enumerate() {
            if optional && levels.get(index) != Some(&1) {
                continue;
            }
            let value = values.next().ok_or_else(|| in_column("too few values".into()))?;
            take(row, value).map_err(|what| in_column(format!("row {index}: {what}")))?;
        }
        self.column += 1;
        Ok(())
    }

    /// The values of the next column, and if it is `optional`, for each row whether it has one.
    fn cells<T: DataType>(&self, optional: bool) -> Result<(Vec<T::T>, Vec<i16>), String> {
        let group = self.file.get_row_group(0).map_err(|e| e.to_string())?;
        let reader = group.get_column_reader(self.column).map_err(|e| e.to_string())?;
        let mut reader = get_typed_column_reader::<T>(reader);
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut read = 0;
        while read < self.rows.len() {
            let levels = optional.then_some(&mut levels);
            let records = reader.read_records(self.rows.len() - read, levels, None, &mut values);
            let (records, _, _) = records.map_err(|e| e.to_string())?;
            if records == 0 {
                return Err(format!("{read} rows, expected {}", self.rows.len()));
            }
            read += records;
        }
        Ok((values, levels))
    }
}
