"""Which formula tells a planet's year from its distance? docs/python.md has more."""

import numpy as np
import srjit

axis = np.array([0.387, 0.723, 1.0, 1.524, 5.203, 9.537, 19.19, 30.07])
period = np.array([0.241, 0.615, 1.0, 1.881, 11.86, 29.45, 84.02, 164.8])
engine = srjit.Engine(precision="f64")  # a GPU, if there is one, else the CPU
data = engine.upload(axis, period)
formulas = ["x0*p0", "p0*x0^p1", "p0*exp(p1*x0)"]
program = engine.compile(formulas)
fits = engine.fit(program, data, loss="rmse")
for formula, loss, parameters in zip(formulas, fits.losses, program.split(fits.parameters)):
    print(f"{formula:15} rmse {loss:8.4f}  parameters {parameters.round(4)}")
