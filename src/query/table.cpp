// SPDX-License-Identifier: Apache-2.0
#include "headrace/query/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

namespace headrace::query {
namespace {

/// Regions and chunks start at multiples of this, so that bitmaps start at whole bytes.
constexpr std::int64_t kRowAlignment = 8;
constexpr std::int64_t kViewBytes = 16;
/// Longer strings are in a variadic buffer; shorter ones in the view itself.
constexpr std::int32_t kInlineMax = 12;
constexpr std::string_view kTried = "import an Arrow table";

/// How the buffers of a column are cut into chunks.
enum class Layout : std::uint8_t { fixed, bits, offsets_32, offsets_64, views, whole };

struct Type {
  Layout layout = Layout::whole;
  std::int64_t width = 0;  ///< Bytes of a value, of the layout `fixed`.
};

std::int64_t number_after(std::string_view text, std::size_t at) {
  std::int64_t value = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), value);
  return value;
}

/// By the format string of the Arrow C data interface. Unknown types are read from the source.
Type type_of(std::string_view format) {
  const auto fixed = [](std::int64_t width) { return Type{Layout::fixed, width}; };
  if (format == "b") return {Layout::bits};
  if (format == "z" || format == "u") return {Layout::offsets_32};
  if (format == "Z" || format == "U") return {Layout::offsets_64};
  if (format == "vz" || format == "vu") return {Layout::views};
  if (format == "c" || format == "C") return fixed(1);
  if (format == "s" || format == "S" || format == "e") return fixed(2);
  if (format == "i" || format == "I" || format == "f") return fixed(4);
  if (format == "l" || format == "L" || format == "g") return fixed(8);
  if (format == "tdD" || format == "tts" || format == "ttm" || format == "tiM") return fixed(4);
  if (format == "tdm" || format == "ttu" || format == "ttn" || format == "tiD") return fixed(8);
  if (format.starts_with("ts") || format.starts_with("tD")) return fixed(8);
  if (format == "tin") return fixed(16);
  if (format.starts_with("w:")) {
    const std::int64_t width = number_after(format, 2);
    return width > 0 ? fixed(width) : Type{};
  }
  if (format.starts_with("d:")) {
    // d:precision,scale[,bits]
    const std::size_t comma = format.find(',');
    const std::size_t second =
        comma == std::string_view::npos ? comma : format.find(',', comma + 1);
    return fixed(second == std::string_view::npos ? 16 : number_after(format, second + 1) / 8);
  }
  return {};
}

/// Number of buffers that the layout needs.
std::int64_t buffers_of(Layout layout) {
  switch (layout) {
    case Layout::fixed:
    case Layout::bits:
      return 2;
    case Layout::offsets_32:
    case Layout::offsets_64:
    case Layout::views:
      return 3;
    case Layout::whole:
      return 0;
  }
  return 0;
}

/// All regions of a piece with views; to find their strings, each row must be read.
struct Located {
  std::once_flag once;
  std::vector<Region> regions;
};

/// One chunk of one column.
struct Piece {
  const ArrowArray* source = nullptr;
  Layout layout = Layout::whole;
  std::int64_t first = 0;          ///< Row of the column's buffers.
  std::int64_t offset = 0;         ///< Of the exported array.
  std::vector<Region> regions;     ///< Without the strings of views.
  std::unique_ptr<Located> views;  ///< Only of the layout `views`; written when first read.
};

struct Chunk {
  std::uint32_t row_count = 0;
  std::vector<Piece> pieces;  ///< By column.
};

const std::byte* buffer_of(const ArrowArray& array, std::int64_t index) {
  return static_cast<const std::byte*>(array.buffers[index]);
}

void add_region(Piece& piece, std::int64_t buffer_index, std::int64_t begin, std::int64_t end,
                std::int64_t skipped) {
  const std::byte* const buffer = buffer_of(*piece.source, buffer_index);
  if (buffer == nullptr || begin >= end) return;
  piece.regions.push_back({{buffer + begin, static_cast<std::size_t>(end - begin)},
                           static_cast<std::uint32_t>(buffer_index),
                           static_cast<std::uintptr_t>(skipped)});
}

template <typename Offset>
void add_strings(Piece& piece, std::int64_t aligned, std::int64_t first, std::int64_t end) {
  const std::byte* const offsets = buffer_of(*piece.source, 1);
  if (offsets == nullptr) return;
  add_region(piece, 1, aligned * std::int64_t{sizeof(Offset)},
             (end + 1) * std::int64_t{sizeof(Offset)}, 0);
  const auto offset_at = [&](std::int64_t index) {
    Offset value{};
    std::memcpy(&value, offsets + index * std::int64_t{sizeof(Offset)}, sizeof value);
    return static_cast<std::int64_t>(value);
  };
  add_region(piece, 2, offset_at(first), offset_at(end), offset_at(first));
}

/// An element of a column of views.
struct View {
  std::int32_t length = 0;
  std::int32_t prefix = 0;
  std::int32_t buffer = 0;
  std::int32_t offset = 0;

  /// False for a string that is in the view itself.
  [[nodiscard]] bool is_in_buffer(std::size_t buffer_count) const {
    return length > kInlineMax && buffer >= 0 && static_cast<std::size_t>(buffer) < buffer_count;
  }
};
static_assert(sizeof(View) == kViewBytes);

/// An empty view for a null, whose view is undefined.
View view_at(const std::byte* views, const std::byte* valid, std::int64_t row) {
  View view;
  if (valid != nullptr && (std::to_integer<unsigned>(valid[row / 8]) >> (row % 8) & 1U) == 0) {
    return view;
  }
  std::memcpy(&view, views + row * kViewBytes, sizeof view);
  return view;
}

struct Range {
  std::int64_t begin = std::numeric_limits<std::int64_t>::max();
  std::int64_t end = 0;
};

void add_strings_of_views(Piece& piece, std::int64_t first, std::int64_t end) {
  const std::byte* const views = buffer_of(*piece.source, 1);
  if (views == nullptr) return;
  // The last buffer holds the lengths of those before it.
  std::vector<Range> ranges(static_cast<std::size_t>(piece.source->n_buffers - 3));
  const std::byte* const valid = buffer_of(*piece.source, 0);
  for (std::int64_t row = first; row < end; ++row) {
    const View view = view_at(views, valid, row);
    if (!view.is_in_buffer(ranges.size())) continue;
    Range& range = ranges[static_cast<std::size_t>(view.buffer)];
    range.begin = std::min<std::int64_t>(range.begin, view.offset);
    range.end = std::max<std::int64_t>(range.end, std::int64_t{view.offset} + view.length);
  }
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    add_region(piece, static_cast<std::int64_t>(i) + 2, ranges[i].begin, ranges[i].end,
               ranges[i].begin);
  }
}

/// All regions of a piece. Threading: shared.
std::span<const Region> located(const Piece& piece, std::int64_t row_count) {
  if (piece.views == nullptr) return piece.regions;
  std::call_once(piece.views->once, [&] {
    Piece whole{.source = piece.source,
                .layout = piece.layout,
                .first = piece.first,
                .offset = piece.offset,
                .regions = piece.regions,
                .views = nullptr};
    add_strings_of_views(whole, piece.first, piece.first + row_count);
    piece.views->regions = std::move(whole.regions);
  });
  return piece.views->regions;
}

/// Rows [first, first + count) of the column's buffers.
Piece cut(const ArrowArray& source, Type type, std::int64_t first, std::int64_t count) {
  Piece piece{.source = &source,
              .layout = type.layout,
              .first = first,
              .offset = first,
              .regions = {},
              .views = nullptr};
  if (type.layout == Layout::whole) return piece;
  const std::int64_t aligned = first - first % kRowAlignment;
  const std::int64_t end = first + count;
  const auto bytes_of_bits = [](std::int64_t bits) { return (bits + 7) / 8; };
  piece.offset = first - aligned;
  if (source.null_count != 0) add_region(piece, 0, aligned / 8, bytes_of_bits(end), 0);
  switch (type.layout) {
    case Layout::fixed:
      add_region(piece, 1, aligned * type.width, end * type.width, 0);
      break;
    case Layout::bits:
      add_region(piece, 1, aligned / 8, bytes_of_bits(end), 0);
      break;
    case Layout::offsets_32:
      add_strings<std::int32_t>(piece, aligned, first, end);
      break;
    case Layout::offsets_64:
      add_strings<std::int64_t>(piece, aligned, first, end);
      break;
    case Layout::views:
      add_region(piece, 1, aligned * kViewBytes, end * kViewBytes, 0);
      piece.views = std::make_unique<Located>();
      break;
    case Layout::whole:
      break;
  }
  return piece;
}

}  // namespace

struct TableContent {
  TableContent() = default;
  TableContent& operator=(TableContent&&) = delete;
  ~TableContent() {
    for (const std::unique_ptr<ArrowArray>& batch : batches) batch->release(batch.get());
    if (schema.release != nullptr) schema.release(&schema);
  }

  [[nodiscard]] const ArrowSchema& column(std::uint32_t index) const {
    return *schema.children[index];
  }
  [[nodiscard]] Result<void> add(const ArrowArray& batch, std::uint32_t rows_per_chunk);

  ArrowSchema schema{};
  std::vector<Type> types;
  std::vector<std::unique_ptr<ArrowArray>> batches;  ///< Pieces point into them.
  std::vector<Chunk> chunks;
  std::uint64_t row_count = 0;
};

Result<void> TableContent::add(const ArrowArray& batch, std::uint32_t rows_per_chunk) {
  const auto refuse = [](std::string cause) {
    return fail(Code::corrupt_data, std::string(kTried), std::move(cause),
                "make the table with another library, or report it to its authors");
  };
  if (batch.n_children != schema.n_children) {
    return refuse(fmt::format("a batch has {} columns and the schema {}", batch.n_children,
                              schema.n_children));
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const ArrowArray& array = *batch.children[i];
    if (array.n_buffers < buffers_of(types[i].layout) ||
        array.length < batch.offset + batch.length) {
      return refuse(fmt::format("column '{}' has fewer rows or buffers than its batch of {} rows",
                                schema.children[i]->name, batch.length));
    }
  }
  for (std::int64_t row = 0; row < batch.length; row += rows_per_chunk) {
    if (chunks.size() == std::numeric_limits<std::uint32_t>::max()) {
      return fail(Code::out_of_range, std::string(kTried), "it has more than 2^32 - 1 chunks",
                  "use larger chunks");
    }
    const std::int64_t count = std::min<std::int64_t>(rows_per_chunk, batch.length - row);
    Chunk chunk{static_cast<std::uint32_t>(count), {}};
    chunk.pieces.reserve(types.size());
    for (std::size_t i = 0; i < types.size(); ++i) {
      const ArrowArray& array = *batch.children[i];
      chunk.pieces.push_back(cut(array, types[i], array.offset + batch.offset + row, count));
    }
    chunks.push_back(std::move(chunk));
  }
  row_count += static_cast<std::uint64_t>(batch.length);
  return {};
}

/// Releases a schema or an array, and those of its parts that its consumer has not moved out.
template <typename Exported, typename Out>
void release_exported(Out* out) {
  const std::unique_ptr<Exported> exported(static_cast<Exported*>(out->private_data));
  for (const std::unique_ptr<Out>& part : exported->parts) {
    if (part->release != nullptr) part->release(part.get());
  }
  out->release = nullptr;
}

/// A schema or a part of it, which keeps its table alive.
struct ExportedSchema {
  std::shared_ptr<const Table> owner;
  std::vector<std::unique_ptr<ArrowSchema>> parts;
  std::vector<ArrowSchema*> children;

  /// Parts have their own release functions, because a consumer may move them out.
  static void write(const std::shared_ptr<const Table>& owner, const ArrowSchema& source,
                    std::span<ArrowSchema* const> children, ArrowSchema& out) {
    auto exported = std::make_unique<ExportedSchema>();
    exported->owner = owner;
    const auto add = [&](const ArrowSchema& part) {
      auto& copy = exported->parts.emplace_back(std::make_unique<ArrowSchema>());
      write(owner, part, {part.children, static_cast<std::size_t>(part.n_children)}, *copy);
      return copy.get();
    };
    for (const ArrowSchema* child : children) exported->children.push_back(add(*child));
    out = source;
    out.n_children = static_cast<std::int64_t>(children.size());
    out.children = exported->children.data();
    out.dictionary = source.dictionary == nullptr ? nullptr : add(*source.dictionary);
    out.release = &release_exported<ExportedSchema>;
    out.private_data = exported.release();
  }
};

/// An array or a part of it, which keeps its table and its copies alive.
struct ExportedArray {
  std::shared_ptr<const Table> owner;
  std::vector<cache::Entry> copies;
  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<std::byte[]>> rewritten;  ///< Offsets, views and lengths.
  std::vector<std::unique_ptr<ArrowArray>> parts;
  std::vector<ArrowArray*> children;

  /// Replaces a buffer by one of `count` elements, which the caller writes.
  template <typename Element>
  Element* rewrite(std::size_t buffer_index, std::int64_t count) {
    const std::size_t byte_count = static_cast<std::size_t>(count) * sizeof(Element);
    auto& made = rewritten.emplace_back(std::make_unique_for_overwrite<std::byte[]>(byte_count));
    buffers[buffer_index] = made.get();
    return reinterpret_cast<Element*>(made.get());
  }

  /// Lets offsets and views count from the start of the copies, whose regions are in `copied` by
  /// buffer, because a consumer may touch whole buffers (pickle, IPC).
  void rebase(const Piece& piece, std::int64_t row_count, std::span<const Region* const> copied) {
    const std::int64_t end = piece.offset + row_count;
    if (piece.layout == Layout::views) return rebase_views(piece.offset, end, copied);
    const auto skipped = static_cast<std::int64_t>(copied[2]->skipped_bytes);
    if (skipped == 0) return;
    if (piece.layout == Layout::offsets_32) {
      rebase_offsets<std::int32_t>(piece.offset, end, skipped);
    } else {
      rebase_offsets<std::int64_t>(piece.offset, end, skipped);
    }
  }

  template <typename Offset>
  void rebase_offsets(std::int64_t first, std::int64_t end, std::int64_t skipped) {
    const auto* const offsets = static_cast<const std::byte*>(buffers[1]);
    Offset* const out = rewrite<Offset>(1, end + 1);
    std::fill_n(out, first, Offset{});
    for (std::int64_t i = first; i <= end; ++i) {
      Offset value{};
      std::memcpy(&value, offsets + i * std::int64_t{sizeof(Offset)}, sizeof value);
      out[i] = static_cast<Offset>(value - skipped);
    }
  }

  void rebase_views(std::int64_t first, std::int64_t end, std::span<const Region* const> copied) {
    const auto* const valid = static_cast<const std::byte*>(buffers[0]);
    const auto* const views = static_cast<const std::byte*>(buffers[1]);
    const void* const lengths = buffers.back();
    View* const out = rewrite<View>(1, end);
    std::fill_n(out, first, View{});
    const std::span<const Region* const> regions = copied.subspan(2, copied.size() - 3);
    for (std::int64_t row = first; row < end; ++row) {
      out[row] = view_at(views, valid, row);
      if (!out[row].is_in_buffer(regions.size())) continue;
      const Region* const region = regions[static_cast<std::size_t>(out[row].buffer)];
      if (region != nullptr) out[row].offset -= static_cast<std::int32_t>(region->skipped_bytes);
    }
    auto* const out_lengths =
        rewrite<std::int64_t>(buffers.size() - 1, static_cast<std::int64_t>(regions.size()));
    std::memcpy(out_lengths, lengths, regions.size() * sizeof *out_lengths);
    for (std::size_t i = 0; i < regions.size(); ++i) {
      if (regions[i] != nullptr) out_lengths[i] = std::ssize(regions[i]->bytes);
    }
  }

  /// Adds a part, which can be moved out like those of schemas.
  ArrowArray& add_part() { return *parts.emplace_back(std::make_unique<ArrowArray>()); }

  static void finish(std::unique_ptr<ExportedArray> exported, ArrowArray& out) {
    out.n_buffers = static_cast<std::int64_t>(exported->buffers.size());
    out.buffers = exported->buffers.data();
    out.n_children = static_cast<std::int64_t>(exported->children.size());
    out.children = exported->children.data();
    out.release = &release_exported<ExportedArray>;
    out.private_data = exported.release();
  }

  static void write_source(const std::shared_ptr<const Table>& owner, const ArrowArray& source,
                           ArrowArray& out) {
    auto exported = std::make_unique<ExportedArray>();
    exported->owner = owner;
    exported->buffers.assign(source.buffers, source.buffers + source.n_buffers);
    add_parts(source, *exported);
    out = source;
    if (source.dictionary != nullptr) {
      write_source(owner, *source.dictionary, *(out.dictionary = &exported->add_part()));
    }
    finish(std::move(exported), out);
  }

  static void add_parts(const ArrowArray& source, ExportedArray& exported) {
    for (std::int64_t i = 0; i < source.n_children; ++i) {
      ArrowArray& child = exported.add_part();
      write_source(exported.owner, *source.children[i], child);
      exported.children.push_back(&child);
    }
  }

  static void write_piece(const std::shared_ptr<const Table>& owner, const Piece& piece,
                          std::uint32_t row_count, std::vector<cache::Entry> copies,
                          ArrowArray& out) {
    const ArrowArray& source = *piece.source;
    auto exported = std::make_unique<ExportedArray>();
    exported->owner = owner;
    exported->buffers.assign(source.buffers, source.buffers + source.n_buffers);
    // Without nulls the bitmap has no region, and `offset` does not count from its start: a slice
    // may share the bitmap of other rows.
    if (piece.layout != Layout::whole && source.null_count == 0) exported->buffers[0] = nullptr;
    std::vector<const Region*> copied(exported->buffers.size());
    bool has_copied = false;
    // Strings of views that are not copied stay where the source has them.
    const std::span<const Region> regions =
        copies.empty() ? std::span<const Region>(piece.regions) : located(piece, row_count);
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const Region& region = regions[i];
      const std::byte* data = region.bytes.data() - region.skipped_bytes;
      if (!copies.empty() && copies[i].cached()) {
        data = copies[i].data().data();
        if (region.buffer_index > 1) {
          copied[region.buffer_index] = &region;
          has_copied = true;
        }
      }
      exported->buffers[region.buffer_index] = data;
    }
    if (has_copied) exported->rebase(piece, row_count, copied);
    exported->copies = std::move(copies);
    add_parts(source, *exported);
    out = {};
    out.length = row_count;
    out.null_count = source.null_count == 0 ? 0 : -1;
    out.offset = piece.offset;
    if (source.dictionary != nullptr) {
      write_source(owner, *source.dictionary, *(out.dictionary = &exported->add_part()));
    }
    finish(std::move(exported), out);
  }
};

/// State of an ArrowArrayStream of a table.
struct TableStream {
  std::shared_ptr<const Table> table;
  std::vector<std::uint32_t> columns;
  std::shared_ptr<ChunkReader> reader;
  std::uint32_t next_chunk = 0;

  static TableStream& of(ArrowArrayStream* stream) {
    return *static_cast<TableStream*>(stream->private_data);
  }

  static int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
    const TableStream& self = of(stream);
    try {
      const ArrowSchema& whole = self.table->content_->schema;
      std::vector<ArrowSchema*> chosen;
      chosen.reserve(self.columns.size());
      for (const std::uint32_t column : self.columns) chosen.push_back(whole.children[column]);
      ExportedSchema::write(self.table, whole, chosen, *out);
      return 0;
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }

  static int get_next(ArrowArrayStream* stream, ArrowArray* out) {
    TableStream& self = of(stream);
    *out = {};
    const std::vector<Chunk>& chunks = self.table->content_->chunks;
    if (self.next_chunk == chunks.size()) return 0;
    try {
      const std::uint32_t chunk_index = self.next_chunk++;
      const Chunk& chunk = chunks[chunk_index];
      if (self.reader != nullptr) self.reader->begin_chunk(chunk_index);
      auto exported = std::make_unique<ExportedArray>();
      exported->owner = self.table;
      exported->buffers.push_back(nullptr);
      for (const std::uint32_t column : self.columns) {
        const Piece& piece = chunk.pieces[column];
        std::vector<cache::Entry> copies;
        if (self.reader != nullptr) {
          copies = self.reader->locate(column, located(piece, chunk.row_count));
        }
        ArrowArray& part = exported->add_part();
        ExportedArray::write_piece(self.table, piece, chunk.row_count, std::move(copies), part);
        exported->children.push_back(&part);
      }
      out->length = chunk.row_count;
      ExportedArray::finish(std::move(exported), *out);
      return 0;
    } catch (const std::bad_alloc&) {
      return ENOMEM;
    }
  }

  static const char* get_last_error(ArrowArrayStream* /*stream*/) {
    return "there is no memory left; use smaller chunks";
  }

  static void release(ArrowArrayStream* stream) {
    delete static_cast<TableStream*>(stream->private_data);
    stream->release = nullptr;
  }
};

Table::Table(std::unique_ptr<TableContent> content) : content_(std::move(content)) {}
Table::~Table() = default;

Result<std::shared_ptr<const Table>> Table::import_stream(ArrowArrayStream* stream,
                                                          std::uint32_t rows_per_chunk) {
  if (stream == nullptr || stream->release == nullptr) {
    return fail(Code::invalid_argument, std::string(kTried), "its stream has been released",
                "pass a stream that has not been read");
  }
  const auto release = [](ArrowArrayStream* held) { held->release(held); };
  const std::unique_ptr<ArrowArrayStream, decltype(release)> held(stream);
  if (rows_per_chunk == 0) {
    return fail(Code::invalid_argument, std::string(kTried), "a chunk has 0 rows",
                "use chunks of at least one row");
  }
  const auto failed = [&](int code) {
    const char* const said = stream->get_last_error(stream);
    return fail(Code::io_failed, std::string(kTried), said != nullptr ? said : "its stream failed",
                "check the source of the table", code);
  };
  auto content = std::make_unique<TableContent>();
  if (const int code = stream->get_schema(stream, &content->schema); code != 0) {
    return failed(code);
  }
  if (std::string_view(content->schema.format) != "+s") {
    return fail(Code::invalid_argument, std::string(kTried),
                "the stream is not a struct of columns",
                "pass a table or batches, not a single array");
  }
  for (std::int64_t i = 0; i < content->schema.n_children; ++i) {
    content->types.push_back(type_of(content->schema.children[i]->format));
  }
  // A multiple of the alignment keeps all chunks of an aligned batch aligned.
  const std::uint32_t rows =
      rows_per_chunk < kRowAlignment ? rows_per_chunk : rows_per_chunk - rows_per_chunk % 8;
  while (true) {
    auto batch = std::make_unique<ArrowArray>();
    if (const int code = stream->get_next(stream, batch.get()); code != 0) return failed(code);
    if (batch->release == nullptr) break;
    const ArrowArray& added = *content->batches.emplace_back(std::move(batch));
    HEADRACE_TRY(content->add(added, rows));
  }
  return std::shared_ptr<const Table>(new Table(std::move(content)));
}

std::uint64_t Table::row_count() const {
  return content_->row_count;
}
std::uint32_t Table::chunk_count() const {
  return static_cast<std::uint32_t>(content_->chunks.size());
}
std::uint32_t Table::chunk_rows(std::uint32_t chunk_index) const {
  return content_->chunks[chunk_index].row_count;
}
std::uint32_t Table::column_count() const {
  return static_cast<std::uint32_t>(content_->types.size());
}
std::string_view Table::column_name(std::uint32_t column) const {
  const char* const name = content_->column(column).name;
  return name != nullptr ? name : "";
}
bool Table::is_movable(std::uint32_t column) const {
  return content_->types[column].layout != Layout::whole;
}

Bytes Table::movable(std::uint32_t column, bool with_views) const {
  std::uint64_t total = 0;
  for (const Chunk& chunk : content_->chunks) {
    const Piece& piece = chunk.pieces[column];
    for (const Region& region : with_views ? located(piece, chunk.row_count) : piece.regions) {
      if (region.bytes.size() >= kRegionMin.count()) total += region.bytes.size();
    }
  }
  return Bytes(total);
}

std::span<const Region> Table::regions(std::uint32_t chunk_index, std::uint32_t column) const {
  const Chunk& chunk = content_->chunks[chunk_index];
  return located(chunk.pieces[column], chunk.row_count);
}

Result<void> Table::open_stream(std::vector<std::uint32_t> columns,
                                std::shared_ptr<ChunkReader> reader, ArrowArrayStream* out) const {
  for (const std::uint32_t column : columns) {
    if (column >= column_count()) {
      return fail(Code::out_of_range, "read a table",
                  fmt::format("there is no column {}: it has {}", column, column_count()),
                  "use an index below that");
    }
  }
  auto stream = std::make_unique<TableStream>(
      TableStream{shared_from_this(), std::move(columns), std::move(reader)});
  *out = {&TableStream::get_schema, &TableStream::get_next, &TableStream::get_last_error,
          &TableStream::release, stream.release()};
  return {};
}

void Table::invalidate(cache::Cache& cache) const {
  for (const Chunk& chunk : content_->chunks) {
    for (const Piece& piece : chunk.pieces) {
      for (const Region& region : located(piece, chunk.row_count)) {
        if (region.bytes.size() >= kRegionMin.count()) cache.invalidate(region.bytes);
      }
    }
  }
}

}  // namespace headrace::query
