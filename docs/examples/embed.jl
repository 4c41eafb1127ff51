# A program in Julia: the example of docs/embedding.md. SRJIT_LIBRARY is the path of libsrjit.so.
const libsrjit = get(ENV, "SRJIT_LIBRARY", "libsrjit")

struct Matrix
    size::UInt64; data::Ptr{Float64}; rows::UInt64; columns::UInt64
    row_stride::Int64; column_stride::Int64; type::Int32; on_device::Int32
end
struct Data
    size::UInt64; columns::Ptr{Matrix}; target::Ptr{Matrix}; weights::Ptr{Matrix}; names::Ptr{Cvoid}; stream::UInt64
end
struct Population
    size::UInt64; expressions::UInt64; codes::Ptr{Int32}; constants::Ptr{Float64}; offsets::Ptr{Int64}
    notation::Int32; reserved::Int32
end
struct Losses
    size::UInt64; count::UInt64; values::Ptr{Float64}; valid_rows::Ptr{UInt64}
    derivative_count::UInt64; derivatives::Ptr{Float64}; failures::Ptr{Cvoid}
end

check(status) = status == 0 || error("srjit: error $status")

# 1 is SRJIT_F64. A matrix of Julia has its columns behind one another, which strides of 0 say.
matrix(m) = Matrix(sizeof(Matrix), pointer(m), size(m, 1), size(m, 2), 0, 0, 1, 0)

X = [1.0; 2.0; 3.0;;]
y = [1.0; 4.0; 9.0;;]
codes = Int32[-1, -1, 3, -1, 11]  # x0 * x0, and square(x0)
offsets = Int64[0, 3, 5]
values = zeros(2)

GC.@preserve X y codes offsets values begin
    engine = Ref{Ptr{Cvoid}}()
    check(ccall((:srjit_engine_create, libsrjit), Int32, (Ptr{Cvoid}, Ref{Ptr{Cvoid}}, Ptr{Cvoid}), C_NULL, engine, C_NULL))
    columns, target, data = Ref(matrix(X)), Ref(matrix(y)), Ref{Ptr{Cvoid}}()
    GC.@preserve columns target begin
        pointer_of(m) = Base.unsafe_convert(Ptr{Matrix}, m)
        view = Ref(Data(sizeof(Data), pointer_of(columns), pointer_of(target), C_NULL, C_NULL, 0))
        check(ccall((:srjit_dataset_create, libsrjit), Int32, (Ptr{Cvoid}, Ref{Data}, Ref{Ptr{Cvoid}}, Ptr{Cvoid}),
                      engine[], view, data, C_NULL))
    end
    population = Ref(Population(sizeof(Population), 2, pointer(codes), C_NULL, pointer(offsets), 0, 0))
    losses = Ref(Losses(sizeof(Losses), 2, pointer(values), C_NULL, 0, C_NULL, C_NULL))
    check(ccall((:srjit_population_loss, libsrjit), Int32,
                  (Ptr{Cvoid}, Ref{Population}, Ptr{Cvoid}, Ptr{Float64}, UInt64, Ptr{Cvoid}, Ptr{Cvoid}, Ref{Losses}, Ptr{Cvoid}),
                  engine[], population, data[], C_NULL, 0, C_NULL, C_NULL, losses, C_NULL))
    ccall((:srjit_failures_free, libsrjit), Cvoid, (Ptr{Cvoid},), losses[].failures)
    ccall((:srjit_dataset_free, libsrjit), Cvoid, (Ptr{Cvoid},), data[])
    ccall((:srjit_engine_free, libsrjit), Cvoid, (Ptr{Cvoid},), engine[])
end
println("mse ", values[1], " and ", values[2])
check(values == [0, 0] ? 0 : 1)
