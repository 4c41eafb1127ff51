// A SQLite database as an object. This and its source are the only files that call SQLite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/error.h"
#include "runtime/platform/home_process.h"

struct sqlite3;
struct sqlite3_stmt;
struct sqlite3_blob;

namespace srjit {

/// An error of SQLite. All functions of this file throw it, and std::bad_alloc.
struct SqliteFailure {
  /// A refusal of a file by its user, reported as SQLITE_AUTH.
  static SqliteFailure refusal(Error error);
  /// Damage that SQLite cannot detect, reported as SQLITE_CORRUPT.
  static SqliteFailure damage(const std::filesystem::path& file, const char* what);

  int code;     ///< the primary result code
  Error error;  ///< kMachine, with the file, and SQLite's number, name and text

  bool isDamage() const noexcept;      ///< the file is no database, or a damaged one
  bool isBusy() const noexcept;        ///< another process kept its lock for too long
  bool isProtection() const noexcept;  ///< a file or folder cannot be opened or written
};

/// A prepared statement in use; the destructor resets it for the next use. Columns and bindings count from the left.
class SqliteStatement {
 public:
  SqliteStatement(sqlite3* database, sqlite3_stmt* handle, const std::filesystem::path& file)
      : database_(database), handle_(handle), file_(file) {}
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;
  ~SqliteStatement();

  /// Binds the next parameter. Texts and bytes must outlive the last step.
  SqliteStatement& bind(std::int64_t value);
  SqliteStatement& bind(double value);
  SqliteStatement& bind(std::string_view text);
  SqliteStatement& bind(std::span<const std::byte> bytes);

  /// Advances to the next row; false if there is none.
  bool step();
  void run() {
    while (step()) continue;
  }

  // Values of the current row; a value of another type is converted, or is 0 or empty.
  std::int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;
  std::span<const std::byte> bytes(int column) const;  ///< valid until the next step

 private:
  SqliteStatement& checked(int code);
  sqlite3* database_;
  sqlite3_stmt* handle_;
  const std::filesystem::path& file_;
  int bound_ = 0;
};

/// One connection. Not thread-safe. In a forked child it may only be destroyed, which does not change the parent's
/// locks and log.
class SqliteFile {
 public:
  enum class Access {
    kWrite,       ///< read-only if the file is not writable
    kRead,        ///< with the log and its index, which must exist; changes neither
    kUnchanging,  ///< the file alone, without log and locks, for folders in which SQLite cannot create them
    kMemory       ///< an empty database in memory; its path is for messages
  };
  /// Opens an existing file; an empty one is an empty database. No link is followed, so `file` must be canonical.
  SqliteFile(std::filesystem::path file, Access access);
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  /// How long to wait for locks of other processes; initially 0.
  void waitWhenBusy(int milliseconds);
  bool readOnly() const;
  bool inTransaction() const;

  void execute(const char* sql);
  /// As execute(), but ignores failures.
  void tryTo(const char* sql) noexcept;
  /// `sql` is a string literal, since statements are cached by its address. Only one statement per literal may be in
  /// use at a time.
  SqliteStatement prepare(const char* sql);
  /// `bytes` becomes all bytes of a blob; faster than a statement, which copies the blob. `row` must exist.
  void readBlob(const char* table, const char* column, std::int64_t row, std::vector<std::byte>& bytes);
  /// The first column of the first row, 0 if there is none.
  std::int64_t number(const char* sql);
  /// The application id in the header of the file itself, ignoring its log; nullopt if the header is not that of a
  /// database.
  std::optional<std::uint32_t> headerId();
  /// Makes the file an empty database, whatever its content; other connections see that as a change. `form` has
  /// settings that take effect only in an empty database, such as the page size.
  void empty(const char* form);
  /// Throws the error of a write to a read-only file. `doing` is a verb, as in all messages: "cannot DOING FILE: ...".
  [[noreturn]] void refuseToWrite(const char* doing) const;

 private:
  std::filesystem::path file_;
  const HomeProcess home_;
  sqlite3* database_ = nullptr;
  std::map<const char*, sqlite3_stmt*> statements_;
};

/// A transaction that is rolled back unless it is committed.
class SqliteTransaction {
 public:
  explicit SqliteTransaction(SqliteFile& file) : file_(file) { file_.execute("BEGIN IMMEDIATE"); }
  SqliteTransaction(const SqliteTransaction&) = delete;
  SqliteTransaction& operator=(const SqliteTransaction&) = delete;
  ~SqliteTransaction() {
    if (file_.inTransaction()) file_.tryTo("ROLLBACK");
  }
  void commit() { file_.execute("COMMIT"); }

 private:
  SqliteFile& file_;
};

}  // namespace srjit
