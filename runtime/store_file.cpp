#include "runtime/store_file.h"

#include <chrono>
#include <thread>

namespace srjit {
namespace {

constexpr std::size_t kIdleReaders = 16;
constexpr std::int64_t kApplicationId = 0x73726a74;
constexpr std::int64_t kSchemaVersion = 1;

constexpr const char* kSettings =
    "PRAGMA secure_delete = OFF; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 512;"
    "PRAGMA journal_size_limit = 16777216";
// Pages of 32 KiB: half a megabyte is read in less than half the time that pages of 4 KiB take.
constexpr const char* kForm = "PRAGMA page_size = 32768; PRAGMA auto_vacuum = NONE";
// Code is apart from what changes, since an update writes all of a row; `by_use` has all that eviction reads.
constexpr const char* kSchema =
    "CREATE TABLE images (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, title TEXT NOT NULL,"
    "  is_ptx INTEGER NOT NULL, seconds REAL NOT NULL, bytes INTEGER NOT NULL, checksum BLOB NOT NULL,"
    "  used INTEGER NOT NULL);"
    "CREATE INDEX by_use ON images (used, bytes);"
    "CREATE TABLE codes (id INTEGER PRIMARY KEY, kernels TEXT NOT NULL, code BLOB NOT NULL);"
    "CREATE TRIGGER drop_code AFTER DELETE ON images BEGIN DELETE FROM codes WHERE id = old.id; END;"
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) WITHOUT ROWID";

bool isOurs(SqliteFile& file) {
  return file.number("PRAGMA application_id") == kApplicationId && file.number("PRAGMA user_version") == kSchemaVersion;
}

/// Gives a file that is empty, or not ours, its schema.
void giveSchema(SqliteFile& file) {
  file.execute("BEGIN");
  const bool ours = isOurs(file);
  const bool empty = file.number("SELECT count(*) FROM sqlite_schema") == 0;
  file.execute("COMMIT");
  if (ours) return;
  if (empty) {
    file.execute(kForm);
  } else {
    file.empty(kForm);
  }
  file.execute("PRAGMA journal_mode = WAL");
  SqliteTransaction transaction(file);
  if (isOurs(file)) return;  // another process was faster
  file.execute(kSchema);
  file.execute(
      fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {}", kApplicationId, kSchemaVersion).c_str());
  transaction.commit();
}

}  // namespace

StoreFile::StoreFile(std::filesystem::path file) : path_(std::move(file)) { readers_.reserve(kIdleReaders); }

std::unique_ptr<SqliteFile> StoreFile::connectOnce() {
  std::error_code ignored;
  try {
    auto file = std::make_unique<SqliteFile>(path_, SqliteFile::Access::kWrite);
    file->waitWhenBusy(kPatience);
    if (!file->readOnly()) {
      file->execute(kSettings);
      giveSchema(*file);
    } else if (!isOurs(*file)) {
      file->refuseToWrite("renew the schema of");
    }
    return file;
  } catch (const SqliteFailure& failure) {
    if (!failure.isProtection() || !std::filesystem::is_regular_file(path_, ignored)) throw;
  }
  auto file = std::make_unique<SqliteFile>(path_, SqliteFile::Access::kUnchanging);
  if (!isOurs(*file)) file->refuseToWrite("renew the schema of");
  return file;
}

// SQLite does not wait for locks in every step of making a database.
std::unique_ptr<SqliteFile> StoreFile::connect() {
  constexpr int kPause = 5;
  for (int waited = 0;; waited += kPause) {
    try {
      return connectOnce();
    } catch (const SqliteFailure& failure) {
      if (!failure.isBusy() || waited >= kPatience) throw;
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
  SqliteFile file(path_, SqliteFile::Access::kWrite);
  if (file.readOnly()) file.refuseToWrite("repair");
  ++generation_;
  writer_.reset();
  readers_.clear();
  file.waitWhenBusy(kPatience);
  file.empty(kForm);
}

void StoreFile::compact() {
  const std::scoped_lock lock(write_mutex_);
  writer().tryTo("VACUUM");
  writer().tryTo("PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace srjit
