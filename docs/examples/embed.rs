// A program in Rust: the example of docs/embedding.md.
use std::ffi::{c_char, c_void};
use std::mem::{size_of, zeroed};
use std::ptr::{null, null_mut};

#[repr(C)]
struct Error { size: u64, code: i32, has_place: i32, line: u64, column: u64, length: u64, message: [u8; 984] }
#[repr(C)]
struct Matrix {
    size: u64, data: *const c_void, rows: u64, columns: u64, row_stride: i64, column_stride: i64, kind: i32, on_device: i32,
}
#[repr(C)]
struct Data { size: u64, columns: *const Matrix, target: *const Matrix, weights: *const Matrix, names: *const *const c_char, stream: u64 }
#[repr(C)]
struct Population {
    size: u64, expressions: u64, codes: *const i32, constants: *const f64, offsets: *const i64, notation: i32, reserved: i32,
}
#[repr(C)]
struct Losses {
    size: u64, count: u64, values: *mut f64, valid_rows: *mut u64, derivative_count: u64, derivatives: *mut f64, failures: *mut c_void,
}

#[link(name = "srjit")]
extern "C" {
    fn srjit_engine_create(options: *const c_void, engine: *mut *mut c_void, error: *mut Error) -> i32;
    fn srjit_engine_free(engine: *mut c_void);
    fn srjit_dataset_create(engine: *const c_void, data: *const Data, dataset: *mut *mut c_void, error: *mut Error) -> i32;
    fn srjit_dataset_free(dataset: *mut c_void);
    fn srjit_population_loss(engine: *const c_void, population: *const Population, data: *const c_void,
                             parameters: *const f64, parameter_count: u64, options: *const c_void,
                             compile_options: *const c_void, losses: *mut Losses, error: *mut Error) -> i32;
    fn srjit_failures_free(failures: *mut c_void);
}

fn matrix(values: &[f64]) -> Matrix {
    Matrix { size: size_of::<Matrix>() as u64, data: values.as_ptr().cast(), rows: values.len() as u64, columns: 1,
             row_stride: 0, column_stride: 0, kind: 1, on_device: 0 }
}

fn main() {
    let (x, y) = ([1.0, 2.0, 3.0], [1.0, 4.0, 9.0]);
    let (codes, offsets) = ([-1, -1, 3, -1, 11], [0_i64, 3, 5]); // x0 * x0, and square(x0)
    let mut values = [0.0_f64; 2];
    unsafe {
        let mut error = Error { size: size_of::<Error>() as u64, ..zeroed() };
        let (mut engine, mut data) = (null_mut(), null_mut());
        assert_eq!(srjit_engine_create(null(), &mut engine, &mut error), 0);
        let (columns, target) = (matrix(&x), matrix(&y));
        let view = Data { size: size_of::<Data>() as u64, columns: &columns, target: &target, ..zeroed() };
        assert_eq!(srjit_dataset_create(engine, &view, &mut data, &mut error), 0);
        let population = Population { size: size_of::<Population>() as u64, expressions: 2, codes: codes.as_ptr(),
                                      offsets: offsets.as_ptr(), ..zeroed() };
        let mut losses = Losses { size: size_of::<Losses>() as u64, count: 2, values: values.as_mut_ptr(), ..zeroed() };
        let status = srjit_population_loss(engine, &population, data, null(), 0, null(), null(), &mut losses, &mut error);
        assert_eq!(status, 0, "{}", String::from_utf8_lossy(&error.message));
        srjit_failures_free(losses.failures);
        srjit_dataset_free(data);
        srjit_engine_free(engine);
    }
    println!("mse {} and {}", values[0], values[1]);
    assert_eq!(values, [0.0, 0.0]);
}
