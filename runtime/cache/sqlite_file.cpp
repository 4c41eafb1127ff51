#include "runtime/cache/sqlite_file.h"

#include <sqlite3.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include <fmt/format.h>

namespace srjit {
namespace {

const char* nameOfCode(int code) {
  static constexpr std::array kNames = {
      "SQLITE_OK",       "SQLITE_ERROR",      "SQLITE_INTERNAL", "SQLITE_PERM",      "SQLITE_ABORT", "SQLITE_BUSY",
      "SQLITE_LOCKED",   "SQLITE_NOMEM",      "SQLITE_READONLY", "SQLITE_INTERRUPT", "SQLITE_IOERR", "SQLITE_CORRUPT",
      "SQLITE_NOTFOUND", "SQLITE_FULL",       "SQLITE_CANTOPEN", "SQLITE_PROTOCOL",  "SQLITE_EMPTY", "SQLITE_SCHEMA",
      "SQLITE_TOOBIG",   "SQLITE_CONSTRAINT", "SQLITE_MISMATCH", "SQLITE_MISUSE",    "SQLITE_NOLFS", "SQLITE_AUTH",
      "SQLITE_FORMAT",   "SQLITE_RANGE",      "SQLITE_NOTADB"};
  const auto index = static_cast<std::size_t>(code & 0xff);
  return index < kNames.size() ? kNames[index] : "unknown";
}

[[noreturn]] void fail(int code, const char* text, const std::filesystem::path& file, const char* doing) {
  throw SqliteFailure{
      code & 0xff,
      {Errc::kMachine,
       fmt::format("cannot {} {}: SQLite error {} ({}): {}", doing, file.string(), code, nameOfCode(code), text),
       {}}};
}

/// What SQLite says, with the code SQLITE_ERROR, of numbers in the header of a file that no version of SQLite writes
/// ("Database File Format", section 1.3): a schema format above 4; and a text encoding that is a multiple of 4, when
/// the connection reads the schema again. Nothing is attached to files of this class.
constexpr std::string_view kUnsupportedFormat = "unsupported file format",
                           kOtherEncoding = "attached databases must use the same text encoding as main database";

/// Throws if `code` is an error.
void check(int code, sqlite3* database, const std::filesystem::path& file, const char* doing) {
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return;
  if ((code & 0xff) == SQLITE_NOMEM) throw std::bad_alloc();
  const char* const text = database != nullptr ? sqlite3_errmsg(database) : sqlite3_errstr(code);
  const bool is_damage = code == SQLITE_ERROR && (text == kUnsupportedFormat || text == kOtherEncoding);
  fail(is_damage ? SQLITE_CORRUPT : code, text, file, doing);
}

std::string uriOf(const std::filesystem::path& file, const char* parameter) {
  std::string name = "file:";
  for (const char c : file.string()) {
    if (c == '%' || c == '?' || c == '#') {
      name += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      name += c;
    }
  }
  return name + '?' + parameter;
}

struct Opening {
  std::string name;
  int flags;
};

Opening openingOf(const std::filesystem::path& file, SqliteFile::Access access) {
  switch (access) {
    case SqliteFile::Access::kRead:
      return {uriOf(file, "readonly_shm=1"), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI};
    case SqliteFile::Access::kUnchanging:
      return {uriOf(file, "immutable=1"), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI};
    case SqliteFile::Access::kMemory:
      return {":memory:", SQLITE_OPEN_READWRITE};
    case SqliteFile::Access::kWrite:
      break;
  }
  return {file.string(), SQLITE_OPEN_READWRITE};
}

/// Reserves memory and, where the kernel supports it (Linux 5.14), populates its pages in one call. Page faults at
/// first touch would take most of the time of reading a large blob.
void reserveAtOnce(std::vector<std::byte>& bytes, std::size_t size) {
  bytes.reserve(size);
#ifdef MADV_POPULATE_WRITE
  constexpr std::size_t kPage = 4096;
  const std::size_t before = (kPage - reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage) % kPage;
  if (before + kPage <= size) madvise(bytes.data() + before, (size - before) / kPage * kPage, MADV_POPULATE_WRITE);
#endif
}

}  // namespace

SqliteFailure SqliteFailure::refusal(Error error) { return {SQLITE_AUTH, std::move(error)}; }

SqliteFailure SqliteFailure::damage(const std::filesystem::path& file, const char* what) {
  return {SQLITE_CORRUPT, {Errc::kMachine, fmt::format("{} is damaged: {}", file.string(), what), {}}};
}

bool SqliteFailure::isDamage() const noexcept { return code == SQLITE_CORRUPT || code == SQLITE_NOTADB; }
bool SqliteFailure::isBusy() const noexcept { return code == SQLITE_BUSY; }
bool SqliteFailure::isProtection() const noexcept { return code == SQLITE_CANTOPEN || code == SQLITE_READONLY; }

SqliteStatement::~SqliteStatement() {
  sqlite3_reset(handle_);
  sqlite3_clear_bindings(handle_);
}

SqliteStatement& SqliteStatement::checked(int code) {
  check(code, database_, file_, "use");
  return *this;
}

SqliteStatement& SqliteStatement::bind(std::int64_t value) {
  return checked(sqlite3_bind_int64(handle_, ++bound_, value));
}

SqliteStatement& SqliteStatement::bind(double value) { return checked(sqlite3_bind_double(handle_, ++bound_, value)); }

// A null pointer would bind NULL.
SqliteStatement& SqliteStatement::bind(std::string_view text) {
  const char* const begin = text.empty() ? "" : text.data();
  return checked(sqlite3_bind_text64(handle_, ++bound_, begin, text.size(), SQLITE_STATIC, SQLITE_UTF8));
}

SqliteStatement& SqliteStatement::bind(std::span<const std::byte> bytes) {
  const void* const begin = bytes.empty() ? "" : static_cast<const void*>(bytes.data());
  return checked(sqlite3_bind_blob64(handle_, ++bound_, begin, bytes.size(), SQLITE_STATIC));
}

bool SqliteStatement::step() {
  const int code = sqlite3_step(handle_);
  checked(code);
  return code == SQLITE_ROW;
}

std::int64_t SqliteStatement::integer(int column) const { return sqlite3_column_int64(handle_, column); }
double SqliteStatement::real(int column) const { return sqlite3_column_double(handle_, column); }

std::span<const std::byte> SqliteStatement::bytes(int column) const {
  const auto* const begin = static_cast<const std::byte*>(sqlite3_column_blob(handle_, column));
  if (begin == nullptr && sqlite3_errcode(database_) == SQLITE_NOMEM) throw std::bad_alloc();
  return {begin, begin == nullptr ? 0 : static_cast<std::size_t>(sqlite3_column_bytes(handle_, column))};
}

std::string SqliteStatement::text(int column) const {
  const std::span<const std::byte> raw = bytes(column);
  return {reinterpret_cast<const char*>(raw.data()), raw.size()};
}

SqliteFile::SqliteFile(std::filesystem::path file, Access access) : file_(std::move(file)) {
  constexpr int kFlags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
  const Opening opening = openingOf(file_, access);
  const int code = sqlite3_open_v2(opening.name.c_str(), &database_, opening.flags | kFlags, nullptr);
  try {
    check(code, database_, file_, "open");
  } catch (...) {
    sqlite3_close(database_);
    throw;
  }
  sqlite3_extended_result_codes(database_, 1);
}

SqliteFile::~SqliteFile() {
  if (home_.isForked()) return;
  for (const auto& [sql, handle] : statements_) sqlite3_finalize(handle);
  sqlite3_close(database_);
}

void SqliteFile::waitWhenBusy(int milliseconds) { sqlite3_busy_timeout(database_, milliseconds); }
bool SqliteFile::readOnly() const { return sqlite3_db_readonly(database_, "main") == 1; }
bool SqliteFile::inTransaction() const { return sqlite3_get_autocommit(database_) == 0; }

void SqliteFile::execute(const char* sql) {
  check(sqlite3_exec(database_, sql, nullptr, nullptr, nullptr), database_, file_, "use");
}

void SqliteFile::tryTo(const char* sql) noexcept { sqlite3_exec(database_, sql, nullptr, nullptr, nullptr); }

SqliteStatement SqliteFile::prepare(const char* sql) {
  sqlite3_stmt*& handle = statements_[sql];
  if (handle == nullptr) {
    check(sqlite3_prepare_v3(database_, sql, -1, SQLITE_PREPARE_PERSISTENT, &handle, nullptr), database_, file_, "use");
  }
  return {database_, handle, file_};
}

void SqliteFile::readBlob(const char* table, const char* column, std::int64_t row, std::vector<std::byte>& bytes) {
  sqlite3_blob* opened = nullptr;
  check(sqlite3_blob_open(database_, "main", table, column, row, 0, &opened), database_, file_, "use");
  const std::unique_ptr<sqlite3_blob, int (*)(sqlite3_blob*)> blob(opened, sqlite3_blob_close);
  const int size = sqlite3_blob_bytes(blob.get());
  if (static_cast<std::size_t>(size) > bytes.capacity()) {
    bytes.clear();
    reserveAtOnce(bytes, static_cast<std::size_t>(size));
  }
  bytes.resize(static_cast<std::size_t>(size));
  check(sqlite3_blob_read(blob.get(), bytes.data(), size, 0), database_, file_, "use");
}

std::int64_t SqliteFile::number(const char* sql) {
  SqliteStatement statement = prepare(sql);
  return statement.step() ? statement.integer(0) : 0;
}

// Reads through SQLite's own file handle: closing another one would release all POSIX locks of this process on the
// file.
std::optional<std::uint32_t> SqliteFile::headerId() {
  static constexpr std::string_view kMagic("SQLite format 3\0", 16);
  constexpr std::size_t kIdAt = 68, kSize = 100;  // sqlite.org/fileformat2.html, section 1.3
  sqlite3_file* handle = nullptr;
  check(sqlite3_file_control(database_, "main", SQLITE_FCNTL_FILE_POINTER, static_cast<void*>(&handle)), database_,
        file_, "read");
  std::array<unsigned char, kSize> header{};
  if (handle->pMethods == nullptr || handle->pMethods->xRead(handle, header.data(), kSize, 0) != SQLITE_OK) return {};
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) return {};
  std::uint32_t id = 0;
  for (std::size_t i = 0; i < sizeof id; ++i) id = id << 8 | header[kIdAt + i];
  return id;
}

void SqliteFile::empty(const char* form) {
  sqlite3_db_config(database_, SQLITE_DBCONFIG_RESET_DATABASE, 1, nullptr);
  tryTo(form);
  const int code = sqlite3_exec(database_, "VACUUM", nullptr, nullptr, nullptr);
  sqlite3_db_config(database_, SQLITE_DBCONFIG_RESET_DATABASE, 0, nullptr);
  check(code, database_, file_, "empty");
}

void SqliteFile::refuseToWrite(const char* doing) const {
  fail(SQLITE_READONLY, sqlite3_errstr(SQLITE_READONLY), file_, doing);
}

}  // namespace srjit
