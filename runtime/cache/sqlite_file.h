// A SQLite database as an object. This and its source are the only files that touch SQLite.
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

/// What SQLite said. Thrown by everything here, besides std::bad_alloc.
struct SqliteFailure {
  /// What who uses a file throws to refuse it, as with SQLITE_AUTH.
  static SqliteFailure refusal(Error error);
  /// That the file is no sound one in a way that SQLite does not know of, as with SQLITE_CORRUPT.
  static SqliteFailure damage(const std::filesystem::path& file, const char* what);

  int code;     ///< the primary result code
  Error error;  ///< kMachine, with the file, and SQLite's number, name and text

  bool isDamage() const noexcept;      ///< the file is no database, or not a sound one
  bool isBusy() const noexcept;        ///< another process kept its lock for too long
  bool isProtection() const noexcept;  ///< a file or folder cannot be opened or written
};

/// A prepared statement in use, made ready for the next use at its end. Columns and bindings count from the left.
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

  /// Goes to the next row; false if there is none.
  bool step();
  void run() {
    while (step()) continue;
  }

  // Of the present row; a value of another type is converted, or 0, or empty.
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

/// One connection. Not thread-safe. In a forked child it may only be destroyed, which then leaves the parent's locks
/// and log as they are.
class SqliteFile {
 public:
  enum class Access {
    kWrite,       ///< opened for reading if it may not be written
    kRead,        ///< with the log and its index, which must be there; changes none of them
    kUnchanging,  ///< read as it is, without log and locks, for folders in which SQLite cannot put them
    kMemory       ///< an empty database that is no file; its path is for messages
  };
  /// Opens a file that is there; an empty one is an empty database. No link is followed, so `file` must be canonical.
  SqliteFile(std::filesystem::path file, Access access);
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;
  ~SqliteFile();

  /// How long to wait for locks of other processes; at first not at all.
  void waitWhenBusy(int milliseconds);
  bool readOnly() const;
  bool inTransaction() const;

  void execute(const char* sql);
  /// As execute(), where a failure does not matter.
  void tryTo(const char* sql) noexcept;
  /// `sql` is a literal: it is known by its address. One at a time of each.
  SqliteStatement prepare(const char* sql);
  /// All bytes of a blob; quicker than a statement, which makes a copy of its own. `row` must exist.
  std::vector<std::byte> readBlob(const char* table, const char* column, std::int64_t row);
  /// The first column of the first row, 0 if there is none.
  std::int64_t number(const char* sql);
  /// The application id in the first bytes of the file itself, whatever is in its log; nothing if they are not those of
  /// a database.
  std::optional<std::uint32_t> headerId();
  /// Makes the file an empty database whatever it holds; others who have it open see that as a change. `form` are
  /// settings that count while a database is empty, such as its page size.
  void empty(const char* form);
  /// Fails as writing would. `doing` is a verb, as in all messages: "cannot DOING FILE: ...".
  [[noreturn]] void refuseToWrite(const char* doing) const;

 private:
  std::filesystem::path file_;
  const HomeProcess home_;
  sqlite3* database_ = nullptr;
  std::map<const char*, sqlite3_stmt*> statements_;
};

/// Rolled back unless it is committed.
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
