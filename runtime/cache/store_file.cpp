#include "runtime/cache/store_file.h"

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>

#include "runtime/cache/file_trust.h"

namespace srjit {
namespace {

constexpr std::size_t kIdleReaders = 16;
constexpr std::int64_t kApplicationId = 0x73726a74;
constexpr std::int64_t kSchemaVersion = 2;

constexpr const char* kSettings =
    "PRAGMA secure_delete = OFF; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 512;"
    "PRAGMA journal_size_limit = 16777216";
// The largest pages: reading 0.4 MB takes 7/8 of the time of 32 KiB pages, and less than half of that of 4 KiB pages.
constexpr const char* kForm = "PRAGMA page_size = 65536; PRAGMA auto_vacuum = NONE";
// Code is in a table of its own, since an update rewrites the whole row; `by_use` covers the query of eviction.
constexpr std::array<std::string_view, 5> kObjects = {
    "CREATE TABLE images (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, title TEXT NOT NULL,"
    "  is_ptx INTEGER NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL, checksum BLOB NOT NULL,"
    "  used INTEGER NOT NULL)",
    "CREATE INDEX by_use ON images (used, bytes)",
    "CREATE TABLE codes (id INTEGER PRIMARY KEY, kernels TEXT NOT NULL, code BLOB NOT NULL)",
    "CREATE TRIGGER drop_code AFTER DELETE ON images BEGIN DELETE FROM codes WHERE id = old.id; END",
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID"};

enum class Content { kNothing, kKernels, kOtherSchema, kForeign };

bool hasAllObjects(SqliteFile& file) {
  SqliteStatement statement = file.prepare("SELECT count(*) FROM sqlite_schema WHERE sql IN (?, ?, ?, ?, ?)");
  for (const std::string_view object : kObjects) statement.bind(object);
  return statement.step() && statement.integer(0) == static_cast<std::int64_t>(kObjects.size());
}

/// Throws if a file of this store is damaged. A damaged file of another program is kForeign.
Content contentOf(SqliteFile& file, const std::filesystem::path& path) {
  try {
    SqliteStatement statement = file.prepare(
        "SELECT (SELECT application_id FROM pragma_application_id), (SELECT user_version FROM pragma_user_version),"
        "  count(*) FROM sqlite_schema");
    statement.step();
    const std::int64_t id = statement.integer(0), version = statement.integer(1), objects = statement.integer(2);
    if (version == 0 && objects == 0 && (id == 0 || id == kApplicationId)) return Content::kNothing;
    if (id != kApplicationId) return Content::kForeign;
    if (version != kSchemaVersion) return Content::kOtherSchema;
    if (!hasAllObjects(file)) throw SqliteFailure::damage(path, "its tables are not those of a kernel cache");
    return Content::kKernels;
  } catch (const SqliteFailure& failure) {
    if (!failure.isDamage() || file.headerId() == kApplicationId) throw;
    return Content::kForeign;
  }
}

/// The same without throwing for damage: a file of this store is kKernels, sound or not. Decides by the header alone
/// where possible, since reading it needs no locks while other processes write.
Content seemingContentOf(SqliteFile& file, const std::filesystem::path& path) {
  if (file.headerId() == kApplicationId) return Content::kKernels;
  try {
    return contentOf(file, path);
  } catch (const SqliteFailure& failure) {
    if (!failure.isDamage()) throw;
    return Content::kKernels;
  }
}

[[noreturn]] void refuseForeign(SqliteFile& file, const std::filesystem::path& path) {
  const char* const what = file.headerId()
                               ? "it is the database of another program"
                               : "it is no SQLite database, or too damaged to be identified as a kernel cache";
  throw SqliteFailure::refusal(
      {Errc::kMachine,
       fmt::format("{} is not a kernel cache of sr-jit ({}), so it is neither used nor changed; delete it, or choose "
                   "another directory (--cache-dir, SRJIT_CACHE_DIR)",
                   path.string(), what),
       {}});
}

void giveSchema(SqliteFile& file, const std::filesystem::path& path) {
  const Content content = contentOf(file, path);
  if (content == Content::kKernels) return;
  if (content == Content::kForeign) refuseForeign(file, path);
  if (content == Content::kOtherSchema) {
    file.empty(kForm);
  } else {
    file.execute(kForm);
  }
  // Writes the id to the disk before a log exists, so that the header of the file has it whatever is damaged or lost
  // later.
  file.execute("PRAGMA synchronous = FULL");
  file.execute(fmt::format("PRAGMA application_id = {}", kApplicationId).c_str());
  file.execute(kSettings);
  file.execute("PRAGMA journal_mode = WAL");
  {
    SqliteTransaction transaction(file);
    if (contentOf(file, path) == Content::kKernels) return;  // another process has created the schema
    for (const std::string_view object : kObjects) file.execute(std::string(object).c_str());
    file.execute(fmt::format("PRAGMA user_version = {}", kSchemaVersion).c_str());
    transaction.commit();
  }
  file.tryTo("PRAGMA wal_checkpoint(PASSIVE)");  // if a log existed before, the id is in the log
}

/// Checks the log and the journal, too: SQLite reads them as part of the database.
void requireTrust(const std::filesystem::path& path) {
  for (const char* const part : {"", "-wal", "-shm", "-journal"}) {
    if (const Status trust = checkTrustOfFile(path.string() + part); !trust) {
      throw SqliteFailure::refusal(trust.error());
    }
  }
}

/// Bytes of a file, 0 if there is none.
std::uintmax_t sizeOf(const std::filesystem::path& file) {
  std::error_code failure;
  const std::uintmax_t size = std::filesystem::file_size(file, failure);
  return failure ? 0 : size;
}

/// An empty store in memory.
std::unique_ptr<SqliteFile> emptyStore(const std::filesystem::path& path) {
  auto file = std::make_unique<SqliteFile>(path, SqliteFile::Access::kMemory);
  for (const std::string_view object : kObjects) file->execute(std::string(object).c_str());
  return file;
}

}  // namespace

StoreFile::StoreFile(std::filesystem::path file, StoreAccess access) : path_(std::move(file)), access_(access) {
  readers_.reserve(kIdleReaders);
}

constexpr std::uintmax_t kLogHeader = 32;

// Reading through the log needs its index. Where the index neither exists nor may be created, reads the file alone:
// either no process has it open, or it has the state of the last checkpoint.
std::unique_ptr<SqliteFile> StoreFile::look() {
  auto file = std::make_unique<SqliteFile>(path_, SqliteFile::Access::kUnchanging);
  if (access_ != StoreAccess::kLook && file->headerId() == kApplicationId) return file;
  // SQLite 3.40 waits for ten seconds on a log that has only a header.
  if (sizeOf(path_.string() + "-wal") <= kLogHeader || sizeOf(path_.string() + "-shm") == 0) return file;
  try {
    auto with_log = std::make_unique<SqliteFile>(path_, SqliteFile::Access::kRead);
    with_log->waitWhenBusy(kPatienceMilliseconds);
    static_cast<void>(with_log->number("PRAGMA application_id"));
    return with_log;
  } catch (const SqliteFailure&) {
    return file;  // the log or its index is damaged, or cannot be locked
  }
}

std::unique_ptr<SqliteFile> StoreFile::connectOnce() {
  requireTrust(path_);
  if (sizeOf(path_) == 0) {
    if (access_ != StoreAccess::kUse) return emptyStore(path_);
    makePrivateFile(path_);  // SQLite would apply the umask; it gives its other files the mode of this one
  }
  // Opening a foreign file for writing can change it, since SQLite checkpoints its log.
  auto looked = look();
  const Content seeming = seemingContentOf(*looked, path_);
  // A file that looks empty may have its whole content in a log that could not be read. A file of this store has the id
  // before it has a log.
  const bool has_unread_log = sizeOf(path_.string() + "-wal") > kLogHeader && sizeOf(path_.string() + "-shm") == 0;
  const bool is_hidden = seeming == Content::kNothing && has_unread_log && looked->headerId() != kApplicationId;
  if (seeming == Content::kForeign || is_hidden) refuseForeign(*looked, path_);
  if (seeming == Content::kNothing && access_ != StoreAccess::kUse) return emptyStore(path_);
  if (access_ == StoreAccess::kLook) {
    return contentOf(*looked, path_) == Content::kKernels ? std::move(looked) : emptyStore(path_);
  }
  looked.reset();
  try {
    auto file = std::make_unique<SqliteFile>(path_, SqliteFile::Access::kWrite);
    file->waitWhenBusy(kPatienceMilliseconds);
    if (!file->readOnly()) {
      file->execute(kSettings);
      giveSchema(*file, path_);
    } else if (contentOf(*file, path_) != Content::kKernels) {
      file->refuseToWrite("replace the schema of");
    }
    return file;
  } catch (const SqliteFailure& failure) {
    if (!failure.isProtection()) throw;
  }
  auto file = std::make_unique<SqliteFile>(path_, SqliteFile::Access::kUnchanging);
  if (contentOf(*file, path_) != Content::kKernels) file->refuseToWrite("replace the schema of");
  return file;
}

// Retries, since SQLite does not wait for locks in every step of creating a database.
std::unique_ptr<SqliteFile> StoreFile::connect() {
  constexpr int kPause = 5;
  for (int waited = 0;; waited += kPause) {
    try {
      return connectOnce();
    } catch (const SqliteFailure& failure) {
      if (!failure.isBusy() || waited >= kPatienceMilliseconds) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(kPause));
  }
}

std::unique_ptr<SqliteFile> StoreFile::takeReader() {
  {
    const std::scoped_lock lock(readers_mutex_);
    if (!readers_.empty()) {
      auto file = std::move(readers_.back());
      readers_.pop_back();
      return file;
    }
  }
  return connect();
}

void StoreFile::giveBack(std::unique_ptr<SqliteFile> file, std::uint64_t generation) noexcept {
  const std::scoped_lock lock(readers_mutex_);
  if (generation == generation_ && readers_.size() < readers_.capacity()) readers_.push_back(std::move(file));
}

SqliteFile& StoreFile::writer() {
  if (!writer_) writer_ = connect();
  return *writer_;
}

void StoreFile::remake(std::uint64_t generation) {
  const std::scoped_lock lock(write_mutex_, readers_mutex_);
  if (generation_ != generation) return;
  requireTrust(path_);
  SqliteFile file(path_, access_ == StoreAccess::kLook ? SqliteFile::Access::kUnchanging : SqliteFile::Access::kWrite);
  if (file.readOnly()) file.refuseToWrite("repair");
  if (seemingContentOf(file, path_) == Content::kForeign) refuseForeign(file, path_);
  ++generation_;
  writer_.reset();
  readers_.clear();
  file.waitWhenBusy(kPatienceMilliseconds);
  file.empty(kForm);
}

void StoreFile::compact() {
  const std::scoped_lock lock(write_mutex_);
  writer().tryTo("VACUUM");
  writer().tryTo("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace srjit
